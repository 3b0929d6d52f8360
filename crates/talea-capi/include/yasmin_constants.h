/*
 * yasmin_constants.h - values of the macros of a YASMIN configuration (config.h); see yasmin.h.
 *
 * The names are those of the paper, if it has one (Rouxel, Altmeyer, Grelck, Middleware 2021,
 * sections 1, 3.2 and 3.6), with a prefix and, unless YAS_PREFIXED_ONLY is defined, without. No
 * value is 0, so that the preprocessor detects a misspelt name.
 */
#ifndef YASMIN_CONSTANTS_H
#define YASMIN_CONSTANTS_H

/* MAPPING_SCHEME: mapping of tasks to workers. */
#define YAS_GLOBAL 1      /* each job runs on any free worker */
#define YAS_PARTITIONED 2 /* each task runs on the worker virt_core_id */

/* PRIORITY_ASSIGNMENT: which job runs first. */
#define YAS_EDF 1 /* earliest absolute deadline */
#define YAS_RM 2  /* shortest period */
#define YAS_DM 3  /* shortest relative deadline */
#define YAS_UDF 4 /* user-defined: largest TData.priority */

/* VERSION_SELECTION: the version of a job, among those whose accelerators are free. */
#define YAS_DECLARED 1  /* the first declared version */
#define YAS_ENERGY 2    /* by the charge of the battery */
#define YAS_TRADE_OFF 3 /* by a weighted sum of time and energy */
#define YAS_MODE 4      /* by the execution mode */
#define YAS_BIT_MASK 5  /* by permissions */
#define YAS_USER 6      /* by a function of the program */

/* YAS_PREEMPTION: whether a job may preempt another job. */
#define YAS_ON 1
#define YAS_OFF 2

#ifndef YAS_PREFIXED_ONLY
#define GLOBAL YAS_GLOBAL
#define PARTITIONED YAS_PARTITIONED
#define EDF YAS_EDF
#define RM YAS_RM
#define DM YAS_DM
#define UDF YAS_UDF
#define DECLARED YAS_DECLARED
#define ENERGY YAS_ENERGY
#define TRADE_OFF YAS_TRADE_OFF
#define MODE YAS_MODE
#define BIT_MASK YAS_BIT_MASK
#define USER YAS_USER
#endif

#endif
