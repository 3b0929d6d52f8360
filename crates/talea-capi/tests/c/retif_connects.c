/* W16: neither connecting again nor connecting in vain leaves a descriptor behind; and without a connection nothing
 * is written to descriptor 0. */
#include "check.h"
#include <retif.h>
#include <unistd.h>

/* The lowest number that is free. */
static int lowest_free(void)
{
    int fd = dup(2);
    close(fd);
    return fd;
}

int main(void)
{
    struct rtf_task t = RTF_TASK_INIT;
    struct rtf_params p = RTF_PARAM_INIT;
    int before, i;
    int ends[2];

    CHECK(rtf_connect() == RTF_OK);
    before = lowest_free();
    for (i = 0; i < 50; i++)
        CHECK(rtf_connect() == RTF_OK);
    CHECK(lowest_free() == before);

    /* A child has no connection of its own yet, and the socket is not where it was. */
    CHECK(pipe(ends) == 0 && dup2(ends[1], 0) == 0);
    i = fork();
    if (i == 0) {
        rtf_params_set_period(&p, 10000);
        CHECK(rtf_task_create(&t, &p) == RTF_OK);
        before = lowest_free();
        for (i = 0; i < 50; i++)
            CHECK(rtf_connect() == RTF_OK);
        CHECK(lowest_free() == before);
        _exit(0);
    }
    close(0);
    close(ends[1]);
    /* The pipe ends without a byte. */
    CHECK(read(ends[0], &i, 1) == 0);
    return 0;
}
