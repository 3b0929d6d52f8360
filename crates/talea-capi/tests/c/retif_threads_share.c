/* W14: tasks that threads create concurrently have distinct numbers. */
#include "check.h"
#include <pthread.h>
#include <retif.h>

#define THREADS 4
#define TASKS_PER_THREAD 500

static uint32_t ids[THREADS][TASKS_PER_THREAD];

static void *run(void *argument)
{
    uint32_t *own = (uint32_t *)argument;
    struct rtf_params p = RTF_PARAM_INIT;
    int i;
    rtf_params_set_period(&p, 10000);
    for (i = 0; i < TASKS_PER_THREAD; i++) {
        struct rtf_task t = RTF_TASK_INIT;
        CHECK(rtf_task_create(&t, &p) == RTF_OK);
        own[i] = t.task_id;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    pthread_t threads[THREADS];
    uint32_t *all = &ids[0][0];
    int i;
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, ids[i]) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    qsort(all, THREADS * TASKS_PER_THREAD, sizeof *all, compare);
    for (i = 1; i < THREADS * TASKS_PER_THREAD; i++)
        CHECK(all[i - 1] != all[i]);
    return 0;
}
