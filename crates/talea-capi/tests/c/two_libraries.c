/* Two copies of the library in one process: the one that the program is linked with, and the one
 * that the argument names. Each of them holds a grant. */
#include "check.h"
#include <dlfcn.h>
#include <string.h>
#include <talea.h>

typedef int connects(const char *path, uint64_t timeout_ns, talea_client **client);
typedef int creates(talea_client *client, const talea_spec *spec, talea_grant **grant);

/* Stores the function of the other copy. */
static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(function, &found, sizeof found);
}

int main(int count, char **arguments)
{
    talea_spec spec = TALEA_SPEC_INIT;
    talea_client *client[2];
    talea_grant *grant[2];
    connects *connect_to = NULL;
    creates *create = NULL;
    void *other;

    CHECK(count == 2);
    other = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(other != NULL);
    find(other, "talea_connect_to", &connect_to);
    find(other, "talea_create", &create);
    CHECK(connect_to != talea_connect_to);
    spec.period_ns = 10000000;
    spec.runtime_ns = 1000000;
    CHECK(talea_connect_to(NULL, 0, &client[0]) == 0);
    CHECK(connect_to(NULL, 0, &client[1]) == 0);
    CHECK(talea_create(client[0], &spec, &grant[0]) == 0);
    CHECK(create(client[1], &spec, &grant[1]) == 0);
    return 0;
}
