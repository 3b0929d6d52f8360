/* Creates a task while signals arrive and the daemon misbehaves. SIGPIPE has its default action.
 * Arguments: the expected result, and the expected errno (0: any). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <retif.h>
#include <signal.h>
#include <sys/time.h>

static void ignores(int signal)
{
    (void)signal;
}

int main(int argc, char **argv)
{
    struct rtf_params p = RTF_PARAM_INIT;
    struct rtf_task t = RTF_TASK_INIT;
    struct sigaction action;
    struct itimerval interval = { { 0, 5000 }, { 0, 5000 } };
    int result;

    CHECK(argc == 3);
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    action.sa_handler = ignores;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &interval, NULL) == 0);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);

    rtf_connect();
    if (getenv("WAIT_FOR_LINE") != NULL) {
        puts("connected");
        fflush(stdout);
        CHECK(fgetc(stdin) == '\n');
    }
    rtf_params_set_period(&p, 10000);
    errno = 0;
    result = rtf_task_create(&t, &p);
    if (result != atoi(argv[1]) || (atoi(argv[2]) != 0 && errno != atoi(argv[2]))) {
        fprintf(stderr, "create: %d, errno %d\n", result, errno);
        return 1;
    }
    return 0;
}
