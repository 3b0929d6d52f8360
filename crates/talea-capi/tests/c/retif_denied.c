/* A request that no access rule permits has a result of its own in J's spelling only. */
#include "check.h"
#include <retif.h>

int main(void)
{
    struct rtf_params p = RTF_PARAM_INIT;
    struct rtf_task t = RTF_TASK_INIT;
    rtf_params_set_period(&p, 10000);
    CHECK(rtf_spec_create(&t, &p) == RTF_ACL_FAIL);
    CHECK(rtf_task_create(&t, &p) == RTF_FAIL);
    CHECK(rts_task_create(&t, &p) == RTS_FAIL);
    return 0;
}
