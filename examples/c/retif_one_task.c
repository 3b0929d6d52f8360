/*
 * One periodic task with the names of the original header, in the shape of its short example: the structures are
 * zeroed by their initialisers and nothing else is called before create.
 *
 *     cc -std=c11 -Wall -Wextra retif_one_task.c $(pkg-config --cflags --libs retif)
 *
 * Ends with 0, with 2 when it was refused, with 3 without a daemon.
 */
#include <retif.h>
#include <stdio.h>

int main(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = RTF_PARAM_INIT;
    char why[512];
    int i;

    if (rtf_connect() == RTF_CONNECTION_ERR) {
        rtf_task_explain(NULL, why, sizeof why);
        fprintf(stderr, "%s\n", why);
        return 3;
    }

    rtf_params_set_period(&p, 10000);
    rtf_params_set_runtime(&p, 1000);

    if (rtf_task_create(&t, &p) == RTF_FAIL) {
        rtf_task_explain(&t, why, sizeof why);
        fprintf(stderr, "%s\n", why);
        return 2;
    }

    rtf_task_attach(&t, 0);
    rtf_task_explain(&t, why, sizeof why);
    printf("%s\n", why);

    rtf_task_start(&t);
    for (i = 0; i < 10; i++)
        rtf_task_wait_period(&t);

    return rtf_task_release(&t) == RTF_OK ? 0 : 1;
}
