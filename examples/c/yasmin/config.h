/*
 * Listing 1 of the YASMIN paper (Rouxel, Altmeyer, Grelck, Middleware 2021), as printed; only line
 * breaks and spaces differ.
 */
#include "yasmin_constants.h"
/*there 1 periodic task: the fork task*/
#define PERIODIC_TASK_SIZE 1
/*all other tasks are activated depending on the presence of input data*/
#define NONPERIODIC_TASK_SIZE 3
/*there are 4 FIFO channels connecting tasks*/
#define CHANNEL_SIZE 4
/*At most 2 versions are used*/
#define VERSION_MAX_SIZE 2
/*adapt the structure and code to select versions of task based on remaining energy*/
#define VERSION_SELECTION ENERGY
/*One hardware accelerator is used*/
#define HWACCEL_SIZE 1
/*the example uses a global on-line scheduler*/
#define MAPPING_SCHEME GLOBAL
/*priority are given using EDF*/
#define PRIORITY_ASSIGNMENT EDF
/*2 worker threads will be used*/
#define THREADS_SIZE 2
