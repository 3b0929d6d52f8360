/* Sizes and offsets that programs were compiled with. The Rust structures assert the same
 * numbers. */
#include <retif.h>
#include <stddef.h>
#include <talea.h>

#ifdef __cplusplus
#define HOLDS(condition) static_assert(condition, #condition)
#else
#define HOLDS(condition) _Static_assert(condition, #condition)
#endif
#define AT(type, field, offset) HOLDS(offsetof(type, field) == (offset))

HOLDS(sizeof(struct rtf_params) == 72);
AT(struct rtf_params, runtime, 0);
AT(struct rtf_params, des_runtime, 8);
AT(struct rtf_params, period, 16);
AT(struct rtf_params, deadline, 24);
AT(struct rtf_params, priority, 32);
AT(struct rtf_params, sched_plugin, 36);
AT(struct rtf_params, ignore_admission, 68);
HOLDS(sizeof(struct rtf_task) == 128);
AT(struct rtf_task, task_id, 0);
AT(struct rtf_task, dmiss, 4);
AT(struct rtf_task, acc_runtime, 8);
AT(struct rtf_task, c, 16);
AT(struct rtf_task, p, 24);
AT(struct rtf_task, at, 96);
AT(struct rtf_task, dl, 112);
HOLDS(sizeof(struct rtf_client_info) == 8);
AT(struct rtf_client_info, state, 4);
HOLDS(sizeof(struct rtf_task_info) == 24);
AT(struct rtf_task_info, ppid, 4);
AT(struct rtf_task_info, priority, 8);
AT(struct rtf_task_info, period, 12);
AT(struct rtf_task_info, util, 16);
AT(struct rtf_task_info, pluginid, 20);
HOLDS(sizeof(struct rtf_plugin_info) == 36);
AT(struct rtf_plugin_info, cputot, 32);
HOLDS(sizeof(struct rtf_cpu_info) == 12);
AT(struct rtf_cpu_info, freeu, 4);
AT(struct rtf_cpu_info, ntask, 8);

/* One type with three spellings. */
HOLDS(sizeof(struct rtf_spec) == sizeof(struct rts_task));
HOLDS(sizeof(struct rts_params) == sizeof(struct rtf_params));

HOLDS(RTF_OK == 1 && RTF_FAIL == 0 && RTF_ERROR == -1);
HOLDS(RTF_CONNECTION_ERR == -1 && RTF_PARTIAL == 0 && RTF_NO == -1);
HOLDS(RTF_SCHEDULE_FAIL == RTF_SCHEDULER_FAIL && RTF_SCHEDULE_FAIL != RTF_ACL_FAIL);
HOLDS(RTF_ACL_FAIL != RTF_CONNECTION_ERR && RTF_ACL_FAIL < 0);
HOLDS(PLUGIN_MAX_NAME == 32);
HOLDS(EMPTY == 0 && CONNECTED == 1 && DISCONNECTED == 2 && ERROR == 3);

HOLDS(sizeof(talea_refusal) == 80);
AT(talea_refusal, asked, 16);
AT(talea_refusal, fits, 32);
AT(talea_refusal, index, 44);
AT(talea_refusal, witness, 48);
AT(talea_refusal, witness_has_ns, 72);
HOLDS(sizeof(talea_spec) == 208);
AT(talea_spec, period_ns, 8);
AT(talea_spec, deadline_ns, 32);
AT(talea_spec, priority, 40);
AT(talea_spec, plugin, 48);
AT(talea_spec, cpus, 80);
HOLDS(sizeof(talea_granted) == 80);
AT(talea_granted, spec_id, 8);
AT(talea_granted, notes, 52);
AT(talea_granted, token, 56);
AT(talea_granted, lost, 72);
HOLDS(sizeof(talea_status) == 72);
AT(talea_status, instance, 8);
AT(talea_status, rules, 68);
HOLDS(sizeof(talea_plugin_info) == 216);
AT(talea_plugin_info, cpus, 72);
AT(talea_plugin_info, out_of_service, 212);
HOLDS(sizeof(talea_info) == 144);
AT(talea_info, accepted_ns, 56);
AT(talea_info, cpu, 72);
AT(talea_info, plugin, 88);
AT(talea_info, overruns, 120);
AT(talea_info, throttled, 136);
HOLDS(sizeof(talea_periodic) == 56);
AT(talea_periodic, skipped, 40);
AT(talea_periodic, shifted_ns, 48);
HOLDS(sizeof(talea_app_config) == 208);
AT(talea_app_config, mapping, 8);
AT(talea_app_config, weight, 20);
AT(talea_app_config, rights, 28);
AT(talea_app_config, cpus, 32);
AT(talea_app_config, daemon_priority, 160);
AT(talea_app_config, daemon_plugin, 168);
AT(talea_app_config, spin_ns, 200);
HOLDS(sizeof(talea_task) == 88);
AT(talea_task, period_ns, 8);
AT(talea_task, offset_ns, 24);
AT(talea_task, priority, 32);
AT(talea_task, backlog, 40);
AT(talea_task, name, 48);
AT(talea_task, cores, 80);
HOLDS(sizeof(talea_task_version) == 80);
AT(talea_task_version, wait, 4);
AT(talea_task_version, energy, 8);
AT(talea_task_version, needs, 32);
AT(talea_task_version, name, 40);
AT(talea_task_version, wait_ns, 72);
HOLDS(sizeof(talea_choice) == 48);
AT(talea_choice, job, 8);
AT(talea_choice, permitted, 32);
AT(talea_choice, versions, 44);
HOLDS(sizeof(talea_job) == 24);
AT(talea_job, number, 8);
AT(talea_job, version, 16);
HOLDS(sizeof(talea_app_report) == 584);
AT(talea_app_report, length_ns, 8);
AT(talea_app_report, tasks, 40);
AT(talea_app_report, rights_error, 48);
AT(talea_app_report, shielded, 304);
AT(talea_app_report, shield_error, 328);
HOLDS(sizeof(talea_task_report) == 592);
AT(talea_task_report, jobs, 8);
AT(talea_task_report, version_jobs, 40);
AT(talea_task_report, name, 552);
AT(talea_task_report, policy, 584);
AT(talea_task_report, priority, 588);

int main(void)
{
    talea_app_config config = TALEA_APP_CONFIG_INIT;
    talea_task task = TALEA_TASK_INIT;
    talea_task_version version = TALEA_TASK_VERSION_INIT;
    talea_job job = TALEA_JOB_INIT;
    talea_app_report whole = TALEA_APP_REPORT_INIT;
    talea_task_report one = TALEA_TASK_REPORT_INIT;
    talea_spec spec = TALEA_SPEC_INIT;
    talea_granted granted = TALEA_GRANTED_INIT;
    talea_refusal refusal = TALEA_REFUSAL_INIT;
    talea_status status = TALEA_STATUS_INIT;
    talea_plugin_info plugin = TALEA_PLUGIN_INFO_INIT;
    talea_info info = TALEA_INFO_INIT;
    talea_periodic periodic = TALEA_PERIODIC_INIT;
    return !(spec.size == sizeof spec && granted.size == sizeof granted &&
             refusal.size == sizeof refusal && status.size == sizeof status &&
             plugin.size == sizeof plugin && info.size == sizeof info &&
             periodic.size == sizeof periodic && config.size == sizeof config &&
             task.size == sizeof task && version.size == sizeof version && job.size == sizeof job &&
             whole.size == sizeof whole && one.size == sizeof one && config.cpus[15] == 0 &&
             one.version_jobs[63] == 0 && spec.cpus[15] == 0 && granted.token[15] == 0);
}
