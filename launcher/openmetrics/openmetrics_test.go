package openmetrics

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
)

// job returns a job in which every value is known.
func job() Job {
	three, still := 3, 2*time.Second
	return Job{ID: "j-1", Name: "first", State: "failed", Created: time.UnixMilli(1500), Code: &three, Generation: 2, PolledAt: time.UnixMilli(2500),
		Hosts: []Host{{Name: "h1", Up: true, Use: &protocol.HostUse{CPUs: 4, Load: 1.5, MemoryTotal: 100,
			Samples: []protocol.Sample{{CPU: 4}, {CPU: 1, Memory: 40, Received: 7, Sent: 8}},
			GPUs:    []protocol.GPUUse{{Index: 1, Name: "A \"B\"\x1b", Percent: 50, MemoryUsed: 5, MemoryTotal: 10, Temperature: -1, Power: 200}, {Index: 1, Percent: 9}}}},
			{Name: "h2"}},
		Tasks: []Task{
			{Name: "worker:0", Host: "h1", Runs: true, Age: time.Minute, Idle: &still, Rate: 4, Values: map[string]metrics.Number{
				"step": 7, "steps": 100, "epoch": 0.5, "epochs": 3, "steps_per_second": 9, "loss": metrics.Number(math.NaN()), "val_loss": 2, "acc": 0.9}},
			{Name: "worker:1", Host: "h2", Code: &three, Values: map[string]metrics.Number{"train/loss": 0.25, "steps_per_second": 9}},
			{Name: "ps:0", Host: "h2"}}}
}

// parsed returns the values in a text of metrics, by name and labels.
func parsed(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	all := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				if l.GetName() != "job" {
					key += " " + l.GetValue()
				} else if l.GetValue() != "j-1" {
					t.Errorf("%s: job %q", name, l.GetValue())
				}
			}
			all[key] = m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return all
}

func TestWriteExportsAllValues(t *testing.T) {
	var text strings.Builder
	if err := Write(&text, job()); err != nil {
		t.Fatal(err)
	}
	body, ended := strings.CutSuffix(text.String(), "# EOF\n")
	if !ended || strings.Contains(body, "\x1b") {
		t.Errorf("no end, or a control character: %q", text.String())
	}
	got := parsed(t, body)
	for key, want := range map[string]float64{
		"plx_job_info first": 1, "plx_job_state failed": 1, "plx_job_state running": 0, "plx_job_exit_code": 3, "plx_job_generation": 2,
		"plx_job_start_time_seconds": 1.5, "plx_last_look_timestamp_seconds": 2.5,
		"plx_host_up h1": 1, "plx_host_up h2": 0, "plx_host_cpu_ratio h1": 0.25, "plx_host_cpus h1": 4, "plx_host_load1 h1": 1.5,
		"plx_host_memory_used_bytes h1": 40, "plx_host_memory_bytes h1": 100,
		"plx_host_network_receive_bytes_per_second h1": 7, "plx_host_network_transmit_bytes_per_second h1": 8,
		"plx_gpu_ratio 1 h1": 0.5, "plx_gpu_memory_used_bytes 1 h1": 5, "plx_gpu_memory_bytes 1 h1": 10, "plx_gpu_power_watts 1 h1": 200,
		"plx_task_running h1 worker:0": 1, "plx_task_running h2 worker:1": 0, "plx_task_exit_code h2 worker:1": 3,
		"plx_task_age_seconds h1 worker:0": 60, "plx_task_still_seconds h1 worker:0": 2,
		"plx_task_step h1 worker:0": 7, "plx_task_steps h1 worker:0": 100, "plx_task_epoch h1 worker:0": 0.5, "plx_task_epochs h1 worker:0": 3,
		"plx_task_loss h1 worker:0": math.NaN(), "plx_task_loss h2 worker:1": 0.25,
		"plx_task_steps_per_second h1 worker:0": 4, "plx_task_steps_per_second h2 worker:1": 9,
		"plx_task_metric h1 acc worker:0": 0.9, "plx_task_metric h1 val_loss worker:0": 2, "plx_task_metric h2 train/loss worker:1": 0.25,
	} {
		v, told := got[key]
		if same := v == want || math.IsNaN(v) && math.IsNaN(want); !told || !same {
			t.Errorf("%s: %v, %t, want %v", key, v, told, want)
		}
	}
	for _, key := range []string{"plx_gpu_temperature_celsius 1 h1", "plx_host_cpus h2", "plx_task_loss h2 ps:0", "plx_task_exit_code h1 worker:0", "plx_task_metric h1 loss worker:0"} {
		if v, told := got[key]; told {
			t.Errorf("%s: %v, and nobody knows it", key, v)
		}
	}
	if want := 43; len(got) != want {
		t.Errorf("%d values, want %d: %v", len(got), want, got)
	}
}

// If a host reports a task twice, only the duplicate value is lost.
func TestDuplicateTaskDoesNotHideOthers(t *testing.T) {
	j := job()
	j.Tasks = append(j.Tasks, j.Tasks[0])
	j.Tasks[0].Name, j.Tasks[3].Name = "a\xff", "a\xff"
	var text strings.Builder
	if err := Write(&text, j); err != nil || !strings.Contains(text.String(), "plx_task_loss") {
		t.Errorf("%v: %s", err, text.String())
	}
}

func TestHandlerNegotiatesTheFormat(t *testing.T) {
	h := Handler(job)
	for _, want := range []struct {
		method, path, accept string
		code                 int
		kind, text           string
	}{
		{"GET", "/metrics", "application/openmetrics-text; version=1.0.0", 200, "application/openmetrics-text; version=1.0.0", "# EOF"},
		{"GET", "/metrics", "", 200, "text/plain; version=0.0.4", "plx_job_exit_code"},
		{"GET", "/", "", 404, "text/plain", "/metrics"},
		{"POST", "/metrics", "", 404, "text/plain", "/metrics"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(want.method, want.path, nil)
		r.Header.Set("Accept", want.accept)
		h.ServeHTTP(w, r)
		if kind := w.Header().Get("Content-Type"); w.Code != want.code || !strings.HasPrefix(kind, want.kind) || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s %s: %d %s\n%s", want.method, want.path, w.Code, kind, w.Body)
		}
	}
}

func TestServeEndsWithTheContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the user has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Handler(job)) }()
	answer, err := http.Get("http://" + l.Addr().String() + Path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if answer.Body.Close(); err != nil || parsed(t, string(text))["plx_job_exit_code"] != 3 {
		t.Errorf("%v: %s", err, text)
	}
	cancel(why)
	if err := <-ended; err != why {
		t.Errorf("Serve: %v, want %v", err, why)
	}
}
