/* Configuration of the test programs of yasmin.h; options of the compiler override it. */
#include <yasmin_constants.h>

#ifndef PERIODIC_TASK_SIZE
#define PERIODIC_TASK_SIZE 2
#endif
#ifndef NONPERIODIC_TASK_SIZE
#define NONPERIODIC_TASK_SIZE 3
#endif
#ifndef CHANNEL_SIZE
#define CHANNEL_SIZE 3
#endif
#ifndef VERSION_MAX_SIZE
#define VERSION_MAX_SIZE 2
#endif
#ifndef HWACCEL_SIZE
#define HWACCEL_SIZE 1
#endif
#ifndef THREADS_SIZE
#define THREADS_SIZE 1
#endif
#ifndef VERSION_SELECTION
#define VERSION_SELECTION YAS_DECLARED
#endif
#ifndef MAPPING_SCHEME
#define MAPPING_SCHEME YAS_GLOBAL
#endif
#ifndef PRIORITY_ASSIGNMENT
#define PRIORITY_ASSIGNMENT YAS_EDF
#endif
