/* W16: repeated connects leak no descriptors, and a request without a connection writes nothing to
 * descriptor 0. */
#include "check.h"
#include <retif.h>
#include <unistd.h>

/* Returns the lowest free descriptor number. */
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

    /* The child has no connection yet, and descriptor 0 is a pipe. */
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
    /* The pipe has received no byte. */
    CHECK(read(ends[0], &i, 1) == 0);
    return 0;
}
