/* TALEA_DISABLE=1 makes every connection fail at once; the message names the variable. */
#include "check.h"
#include <retif.h>
#include <string.h>
#include <talea.h>

int main(void)
{
    talea_client *client = NULL;
    CHECK(talea_connect(&client) == -EOPNOTSUPP && client == NULL);
    CHECK(strstr(talea_last_error(), "TALEA_DISABLE") != NULL);
    CHECK(rtf_connect() == RTF_CONNECTION_ERR && errno == EOPNOTSUPP);
    return 0;
}
