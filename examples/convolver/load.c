/* Ordinary load: computes for the given number of seconds, or until its parent process ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const pid_t parent = getppid();
    const long seconds = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (seconds < 1 || seconds > 600) {
        fprintf(stderr, "usage: load SECONDS (1 to 600)\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    volatile unsigned long sum = 0;
    do {
        for (unsigned long i = 0; i < 100000; i++)
            sum += i;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec);
    return 0;
}
