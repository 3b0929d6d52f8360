/*
 * One periodic task with the names of the original header, structured like its short example: the
 * initialisers zero the structures, and rtf_task_init is not called.
 *
 *     cc -std=c11 -Wall -Wextra retif_one_task.c $(pkg-config --cflags --libs retif)
 *
 * Exit status: 0; 1 if the release fails; 2 if the request is refused; 3 without a daemon.
 */
#include <retif.h>
#include <stdio.h>

int main(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = RTF_PARAM_INIT;
    char reason[512];
    int i;

    if (rtf_connect() == RTF_CONNECTION_ERR) {
        rtf_task_explain(NULL, reason, sizeof reason);
        fprintf(stderr, "%s\n", reason);
        return 3;
    }

    rtf_params_set_period(&p, 10000);
    rtf_params_set_runtime(&p, 1000);

    if (rtf_task_create(&t, &p) == RTF_FAIL) {
        rtf_task_explain(&t, reason, sizeof reason);
        fprintf(stderr, "%s\n", reason);
        return 2;
    }

    rtf_task_attach(&t, 0);
    rtf_task_explain(&t, reason, sizeof reason);
    printf("%s\n", reason);

    rtf_task_start(&t);
    for (i = 0; i < 10; i++)
        rtf_task_wait_period(&t);

    return rtf_task_release(&t) == RTF_OK ? 0 : 1;
}
