"""Each alert fires when it should and stays still when it should not, by Prometheus' own test runner."""

import re
import shutil
import subprocess

import pytest
import yaml

# Alert -> (series that make it fire, labels of what fires, value, series that do not). A series is what promtool's notation says it
# is, a value a minute: '0+6x30' begins at 0 and grows by 6, thirty times.
CASES = {
    "LlorchNoPoolHealthy": ({'orchd_pools{status="healthy"}': "0x30"}, {}, 0, {'orchd_pools{status="healthy"}': "0 1x30"}),
    "LlorchPoolUnhealthy": ({'orchd_pools{status="unhealthy"}': "2x30"}, {}, 2, {'orchd_pools{status="unhealthy"}': "0 1 0x30"}),
    "LlorchGpuUnhealthy": ({'pool_mgr_gpu_healthy{pool_id="p",gpu_id="1"}': "1 0x30", 'pool_mgr_gpu_healthy{pool_id="p",gpu_id="0"}': "1x30"},
                           {"pool_id": "p", "gpu_id": "1"}, 0, {'pool_mgr_gpu_healthy{pool_id="p",gpu_id="1"}': "1x30"}),
    # Also long after orchestratord has forgotten the node's pool.
    "LlorchDaemonDown": ({'up{job="llama-orch",instance="node:9200"}': "1 0x30", 'orchd_pools{status="unhealthy"}': "0 0 1x6 0x30"},
                         {"job": "llama-orch", "instance": "node:9200"}, 0, {'up{job="llama-orch",instance="node:9200"}': "0 1x30", 'up{job="other"}': "0x30"}),
    "LlorchPoolUnregistered": ({'pool_mgr_connection_status{pool_id="p"}': "0x30"}, {"pool_id": "p"}, 0,
                               {'pool_mgr_connection_status{pool_id="p"}': "1x30"}),
    "LlorchHeartbeatsFail": ({'pool_mgr_heartbeats_sent_total{pool_id="p",outcome="failure"}': "0+2x30",
                              'pool_mgr_heartbeats_sent_total{pool_id="p",outcome="success"}': "0+2x30"}, {"pool_id": "p"}, 0.5,
                             {'pool_mgr_heartbeats_sent_total{pool_id="p",outcome="failure"}': "0+1x30",
                              'pool_mgr_heartbeats_sent_total{pool_id="p",outcome="success"}': "0+20x30"}),
    # A tenant that submits beyond its quotas in a loop is refused as often as it likes.
    "LlorchJobsRefused": ({'tasks_rejected_total{reason="QUEUE_FULL"}': "0+10x30", 'orchd_tasks_enqueued_total{outcome="rejected"}': "0+10x30",
                           'orchd_tasks_enqueued_total{outcome="accepted"}': "0+10x30"}, {}, 0.5,
                          {'tasks_rejected_total{reason="QUOTA_EXCEEDED"}': "0+10x30", 'tasks_rejected_total{reason="QUEUE_FULL"}': "1x30",
                           'orchd_tasks_enqueued_total{outcome="rejected"}': "0+10x30", 'orchd_tasks_enqueued_total{outcome="accepted"}': "0+10x30"}),
    "LlorchJobsFail": ({'orchd_tasks_finished_total{status="failed"}': "0+1x30", 'orchd_tasks_finished_total{status="completed"}': "0+9x30"}, {}, 0.1,
                       {'orchd_tasks_finished_total{status="failed"}': "0+1x30", 'orchd_tasks_finished_total{status="completed"}': "0+99x30"}),
    "LlorchQueueStands": ({'orchd_queue_depth{priority="batch"}': "3x30", "tasks_started_total": "7x30"}, {}, 3,
                          {'orchd_queue_depth{priority="batch"}': "3x30", "tasks_started_total": "0+1x30"}),
    "LlorchQueueSlow": ({'orchd_queue_wait_time_ms_bucket{priority="interactive",le="60000"}': "0+0x30",
                         'orchd_queue_wait_time_ms_bucket{priority="interactive",le="300000"}': "0+10x30",
                         'orchd_queue_wait_time_ms_bucket{priority="interactive",le="+Inf"}': "0+10x30"}, {}, 288000,
                        {'orchd_queue_wait_time_ms_bucket{priority="interactive",le="60000"}': "0+10x30",
                         'orchd_queue_wait_time_ms_bucket{priority="interactive",le="+Inf"}': "0+10x30"}),
    "LlorchWorkersCrash": ({'pool_mgr_worker_stops_total{pool_id="p",reason="crash"}': "0+1x30"}, {"pool_id": "p"}, 15,
                           {'pool_mgr_worker_stops_total{pool_id="p",reason="crash"}': "0+0x15 1x15",
                            'pool_mgr_worker_stops_total{pool_id="p",reason="evict"}': "0+5x30"}),
    "LlorchWorkersDoNotStart": ({'pool_mgr_worker_starts_total{pool_id="p",outcome="failed"}': "0+1x30"}, {"pool_id": "p"}, 15,
                                {'pool_mgr_worker_starts_total{pool_id="p",outcome="success"}': "0+1x30"}),
    "LlorchCacheFull": ({'kv_cache_usage_ratio{replica_id="w"}': "1x30"}, {"replica_id": "w"}, 1, {'kv_cache_usage_ratio{replica_id="w"}': "0.9x30"}),
    "LlorchStreamMemoryFull": ({"orchd_relays_paused": "2x30"}, {}, 2, {"orchd_relays_paused": "0 2 0x30"}),
    "LlorchLogLinesDropped": ({"pool_mgr_log_lines_dropped_total": "0+1x30"}, {}, 10, {"orchd_log_lines_dropped_total": "5x30"}),
    "LlorchTracesDropped": ({'orchd_traces_total{outcome="dropped"}': "0+1x30"}, {}, 10, {'orchd_traces_total{outcome="exported"}': "0+9x30"}),
}
AT = "25m"


@pytest.fixture(name="alerts")
def alerts_file(repository):
    return repository / "packaging/observability/alerts.yml"


def rules(alerts):
    return {rule["alert"]: rule for group in yaml.safe_load(alerts.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]}


def test_every_alert_has_a_case(alerts):
    assert rules(alerts).keys() == CASES.keys()


def filled(text, labels, value):
    shown = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], text)
    return shown.replace("{{ $value }}", str(value))


def test_prometheus_fires_them(alerts, tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    tests = []
    for name, (firing, labels, value, still) in CASES.items():
        rule = rules(alerts)[name]
        fires = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": {key: filled(text, labels, value) for key, text in rule["annotations"].items()}}
        # A sum over labels keeps none, and a series that is shown as it is keeps its own.
        for series, expected in ((firing, [fires]), (still, [])):
            tests.append({"name": f"{name}: {'fires' if expected else 'stays still'}", "interval": "1m",
                          "input_series": [{"series": one, "values": values} for one, values in series.items()],
                          "alert_rule_test": [{"eval_time": AT, "alertname": name, "exp_alerts": expected}]})
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(alerts)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
