/* A program may redefine the result macros and use the names of enum CLIENT_STATE. */
#include <retif.h>
#define RTF_OK 1
#define RTF_FAIL 0
#define RTF_ERROR -1
#include <retif.h>

int state(void);
int state(void)
{
    struct rtf_task t;
    struct rtf_params p;
    t = RTF_TASK_INIT;
    p = RTF_PARAM_INIT;
    t.p = p;
    p.des_runtime = (uint64_t)MILLI_TO_MICRO(3);
    return (int)t.task_id + CONNECTED + (int)p.des_runtime + (MILLI_TO_SEC(30) < 0.031);
}
