/* A fork while another thread of the parent waits for a daemon that does not answer: the calls of
 * the child do not wait for that thread, which the child does not have. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <talea.h>
#include <unistd.h>

static talea_client *client;

static void *requests_status(void *result)
{
    talea_status status = TALEA_STATUS_INIT;
    *(int *)result = talea_status_get(client, &status);
    return NULL;
}

int main(void)
{
    talea_status status = TALEA_STATUS_INIT;
    pthread_t thread;
    int result = 0, ended = 1;
    pid_t child;

    CHECK(talea_connect_to(NULL, 2000000000u, &client) == 0);
    CHECK(pthread_create(&thread, NULL, requests_status, &result) == 0);
    usleep(300000);
    child = fork();
    if (child == 0) {
        /* Kills a child that hangs. */
        alarm(20);
        CHECK(talea_status_get(client, &status) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    CHECK(pthread_join(thread, NULL) == 0 && result == -ETIMEDOUT);
    talea_disconnect(client);
    return 0;
}
