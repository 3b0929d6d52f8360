/*
 * yasmin_constants.h - what the macros of a YASMIN configuration (config.h) can be; see yasmin.h.
 *
 * The names of the paper where it has them (Rouxel, Altmeyer, Grelck, Middleware 2021, sections 1, 3.2 and 3.6), with a
 * prefix and, unless YAS_PREFIXED_ONLY is defined, without. None is 0: a misspelt one is found by the preprocessor.
 */
#ifndef YASMIN_CONSTANTS_H
#define YASMIN_CONSTANTS_H

/* MAPPING_SCHEME: where tasks run. */
#define YAS_GLOBAL 1      /* each job on any worker */
#define YAS_PARTITIONED 2 /* each task on the worker that its virt_core_id names */

/* PRIORITY_ASSIGNMENT: who goes first. */
#define YAS_EDF 1 /* earliest absolute deadline */
#define YAS_RM 2  /* shortest period */
#define YAS_DM 3  /* shortest relative deadline */
#define YAS_UDF 4 /* user-defined: largest TData.priority */

/* VERSION_SELECTION: in which version a job is done, of those whose accelerators are free. */
#define YAS_DECLARED 1  /* the first that was declared */
#define YAS_ENERGY 2    /* by what the battery holds */
#define YAS_TRADE_OFF 3 /* by a weighted sum of time and energy */
#define YAS_MODE 4      /* by the execution mode */
#define YAS_BIT_MASK 5  /* by permissions */
#define YAS_USER 6      /* by a function of the user's */

/* YAS_PREEMPTION */
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
