/* The original was installed one directory deeper; programs that look there find the same header. */
#include "../retif.h"
