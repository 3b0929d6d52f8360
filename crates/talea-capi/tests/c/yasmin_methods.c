/* Methods of version selection, one per binary as in the paper. Prints the version of each job. */
#include "yasmin_config.h"

#include "counting.h"
#include <yasmin.h>

/* order[n]: version of job n, as a digit. */
static char order[16];
static uint64_t jobs;

static void in_version(void *name)
{
    order[jobs] = *(const char *)name;
    counts(&jobs);
}

#if VERSION_SELECTION == YAS_ENERGY
static uint64_t charge = 14;
static uint64_t battery(void)
{
    return charge--;
}
#elif VERSION_SELECTION == YAS_USER
static yas_VID second_for_every_third(yas_TID task, uint64_t free_versions, uint64_t job)
{
    /* The scheduler calls this with its lock held: these calls have no effect and do not wait. */
    yas_stop();
    CHECK(!yas_start() && yas_application() != NULL);
    return task == 0 && free_versions == 3 ? job % 3 == 2 : -1;
}
#endif

static yas_TID task;
static void runs_job(void)
{
    uint64_t before = __atomic_load_n(&jobs, __ATOMIC_ACQUIRE);
    yas_task_activate(task);
    waits(&jobs, before + 1);
}

int main(void)
{
    static char first[] = "1", second[] = "2";
    yas_TData data = YAS_TDATA_INIT;
    yas_VSelect one, two;
    int job;

    begin_counting();
    yas_init();
    data.deadline = 500;
    task = yas_task_decl(&data);
#if VERSION_SELECTION == YAS_ENERGY
    one.energy_budget = 5;
    two.energy_budget = 12;
    one.get_battery_status = two.get_battery_status = battery;
#elif VERSION_SELECTION == YAS_TRADE_OFF
    one.energy = 5;
    one.time = 2;
    two.energy = 12;
    two.time = 1;
#elif VERSION_SELECTION == YAS_MODE
    one.modes = 1;
    two.modes = 2;
#elif VERSION_SELECTION == YAS_BIT_MASK
    one.permissions = 4;
    two.permissions = 0;
#elif VERSION_SELECTION == YAS_USER
    one.select = two.select = second_for_every_third;
#else
    one.unused = two.unused = 0;
#endif
    CHECK(yas_version_decl(task, in_version, first, one) == 0);
    CHECK(yas_version_decl(task, in_version, second, two) == 1);
    CHECK(!yas_mode(1) && !yas_permit(1) && !yas_battery(1)); /* not running */
    CHECK(yas_start());
    for (job = 0; job < 3; job++)
        runs_job();
    CHECK(yas_mode(1) && !yas_mode(64) && yas_permit(3) && yas_battery(0));
    for (job = 0; job < 3; job++)
        runs_job();
    yas_stop();
    yas_cleanup();
    puts(order);
    return 0;
}
