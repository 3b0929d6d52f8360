/* W16: failed connects leak no descriptors. */
#include "check.h"
#include <retif.h>
#include <unistd.h>

int main(void)
{
    int before = dup(2), after, i;
    close(before);
    for (i = 0; i < 50; i++)
        CHECK(rtf_connect() == RTF_CONNECTION_ERR && errno == ENOENT);
    after = dup(2);
    close(after);
    CHECK(before == after);
    return 0;
}
