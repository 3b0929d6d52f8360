/* The original installs its header in this folder. Programs that include it here get retif.h. */
#include "../retif.h"
