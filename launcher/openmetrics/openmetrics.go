// Package openmetrics exports the state and the metrics of a job to programs
// such as Prometheus. It writes them in the OpenMetrics text format, once or
// over HTTP.
//
//	err := openmetrics.Write(os.Stdout, job)
//	...
//	handler := openmetrics.Handler(func() openmetrics.Job { return newest })
//	err = openmetrics.Serve(ctx, listener, handler) // until ctx ends
//
// The package asks no hosts: the caller supplies all values. Therefore an HTTP
// request never waits for a host.
package openmetrics

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// Job is the state of a job now, or at its end.
type Job struct {
	ID, Name   string
	State      string // one of States
	Created    time.Time
	Code       *int      // exit status of plx for the job; nil if the job runs or its end is not known
	Generation int       // number of times that the job was restarted or scaled
	PolledAt   time.Time // time at which plx asked the hosts
	Hosts      []Host
	Tasks      []Task
}

// States lists all values of Job.State.
var States = []string{"running", "done", "failed", "stopped", "hung", "lost", "unknown"}

// Host is a host of the job.
type Host struct {
	Name string
	Up   bool              // true if the host has replied to the last request
	Use  *protocol.HostUse // load of the host; nil if not known
}

// Task is a task of the job.
type Task struct {
	Name, Host string
	Runs       bool
	Code       *int           // exit status; nil if the task runs or its end is not known
	Age        time.Duration  // time since the task's start; 0 if not known
	Idle       *time.Duration // time without any activity of the task; nil if not known
	Values     map[string]metrics.Number
	Rate       float64 // steps per second as measured by plx; 0 if not known
}

// Write writes the job's state and metrics to w in the OpenMetrics format.
func Write(w io.Writer, j Job) error {
	return write(w, j, expfmt.NewFormat(expfmt.TypeOpenMetrics))
}

// write writes the job's state and metrics to w in the format that an HTTP
// client has asked for.
func write(w io.Writer, j Job, format expfmt.Format) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector{j}); err != nil {
		return fmt.Errorf("make the metrics: %w", err)
	}
	// If hosts report inconsistent values, Gather returns an error together
	// with all valid metrics. In that case, write sends the valid metrics.
	families, err := registry.Gather()
	if len(families) == 0 && err != nil {
		return fmt.Errorf("make the metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(w, format)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return fmt.Errorf("write the metrics: %w", err)
		}
	}
	if end, ok := encoder.(expfmt.Closer); ok { // Close writes the end mark that OpenMetrics requires
		if err := end.Close(); err != nil {
			return fmt.Errorf("write the metrics: %w", err)
		}
	}
	return nil
}

// collector implements prometheus.Collector for one job. Its metrics depend on
// which values the job has.
type collector struct{ job Job }

// Describe sends no descriptions. The registry then accepts any metric that
// Collect sends.
func (collector) Describe(chan<- *prometheus.Desc) {}

// metric is the name, help text and additional labels of a metric. Every
// metric also has the label "job". The type is not prometheus.Desc, because
// package variables of that type would take time to initialize whenever plx
// starts.
type metric struct {
	name, help string
	labels     []string
}

var (
	jobInfo    = &metric{"job_info", "The job and its name; always 1.", []string{"name"}}
	jobState   = &metric{"job_state", "1 for the state that the job is in, 0 for each other one.", []string{"state"}}
	jobStart   = &metric{"job_start_time_seconds", "When the job was launched, in seconds since 1970.", nil}
	jobCode    = &metric{"job_exit_code", "Exit status of plx for the job, once it has ended.", nil}
	jobRounds  = &metric{"job_generation", "How many times the job was restarted or scaled.", nil}
	jobPolled  = &metric{"last_look_timestamp_seconds", "When plx asked the hosts, in seconds since 1970.", nil}
	hostUp     = &metric{"host_up", "1 if the host has answered, else 0.", []string{"host"}}
	hostCPU    = &metric{"host_cpu_ratio", "Share of the host's processors that is busy, from 0 to 1.", []string{"host"}}
	hostCPUs   = &metric{"host_cpus", "Processors of the host.", []string{"host"}}
	hostLoad   = &metric{"host_load1", "Load average of the last minute, as the kernel reports it.", []string{"host"}}
	hostUsed   = &metric{"host_memory_used_bytes", "Memory of the host that is not available to programs.", []string{"host"}}
	hostMemory = &metric{"host_memory_bytes", "Memory of the host.", []string{"host"}}
	hostIn     = &metric{"host_network_receive_bytes_per_second", "Bytes per second that the host receives on all interfaces except loopback.", []string{"host"}}
	hostOut    = &metric{"host_network_transmit_bytes_per_second", "Bytes per second that the host sends on all interfaces except loopback.", []string{"host"}}
	gpuInfo    = &metric{"gpu_info", "A GPU of the host and its model; always 1.", []string{"host", "gpu", "model"}}
	gpuUse     = &metric{"gpu_ratio", "Share of the time in which the GPU is busy, from 0 to 1.", []string{"host", "gpu"}}
	gpuUsed    = &metric{"gpu_memory_used_bytes", "Memory of the GPU that is used.", []string{"host", "gpu"}}
	gpuMemory  = &metric{"gpu_memory_bytes", "Memory of the GPU.", []string{"host", "gpu"}}
	gpuHeat    = &metric{"gpu_temperature_celsius", "Temperature of the GPU.", []string{"host", "gpu"}}
	gpuPower   = &metric{"gpu_power_watts", "Power that the GPU takes.", []string{"host", "gpu"}}
	taskRuns   = &metric{"task_running", "1 if the task runs, else 0.", []string{"host", "task"}}
	taskCode   = &metric{"task_exit_code", "Exit status of the task, once it has ended.", []string{"host", "task"}}
	taskAge    = &metric{"task_age_seconds", "For how long the task has run.", []string{"host", "task"}}
	taskStill  = &metric{"task_still_seconds", "Seconds without any activity of the task: no output, no step, no bytes, no processor time.", []string{"host", "task"}}
	taskStep   = &metric{"task_step", "Newest step of the task.", []string{"host", "task"}}
	taskSteps  = &metric{"task_steps", "Total number of steps, as the task reports it.", []string{"host", "task"}}
	taskEpoch  = &metric{"task_epoch", "Newest epoch of the task.", []string{"host", "task"}}
	taskEpochs = &metric{"task_epochs", "Total number of epochs, as the task reports it.", []string{"host", "task"}}
	taskRate   = &metric{"task_steps_per_second", "Steps per second, as plx measures them over half a minute, else as the task reports them.", []string{"host", "task"}}
	taskLoss   = &metric{"task_loss", "Newest loss: that of the name loss, else the first one that has the word in its name.", []string{"host", "task"}}
	taskMetric = &metric{"task_metric", "Newest value of each further name that the task has reported.", []string{"host", "task", "metric"}}
)

// Collect sends all known values of the job to the registry.
func (c collector) Collect(to chan<- prometheus.Metric) {
	j := c.job
	descs := map[*metric]*prometheus.Desc{}
	tell := func(m *metric, value float64, labels ...string) {
		if descs[m] == nil {
			descs[m] = prometheus.NewDesc("plx_"+m.name, m.help, append([]string{"job"}, m.labels...), nil)
		}
		for i, l := range labels {
			labels[i] = strings.ToValidUTF8(logs.Escape(l), "\uFFFD") // names come from hosts and programs, so remove invalid and control characters
		}
		to <- prometheus.MustNewConstMetric(descs[m], prometheus.GaugeValue, value, append([]string{j.ID}, labels...)...)
	}
	tell(jobInfo, 1, j.Name)
	for _, state := range States {
		tell(jobState, truth(state == j.State), state)
	}
	if !j.Created.IsZero() {
		tell(jobStart, seconds(j.Created))
	}
	if j.Code != nil {
		tell(jobCode, float64(*j.Code))
	}
	tell(jobRounds, float64(j.Generation))
	if !j.PolledAt.IsZero() {
		tell(jobPolled, seconds(j.PolledAt))
	}
	for _, h := range j.Hosts {
		tell(hostUp, truth(h.Up), h.Name)
		if h.Use != nil {
			use(tell, h.Name, *h.Use)
		}
	}
	for _, t := range j.Tasks {
		task(tell, t)
	}
}

// teller is a function that sends one value of a metric to the registry.
type teller func(m *metric, value float64, labels ...string)

// use sends the load of a host and its GPUs to the registry.
func use(tell teller, host string, u protocol.HostUse) {
	if u.CPUs > 0 {
		tell(hostCPUs, float64(u.CPUs), host)
		tell(hostLoad, u.Load, host)
	}
	if u.MemoryTotal > 0 {
		tell(hostMemory, float64(u.MemoryTotal), host)
	}
	if n := len(u.Samples); n > 0 {
		newest := u.Samples[n-1]
		if u.CPUs > 0 {
			tell(hostCPU, float64(newest.CPU)/float64(u.CPUs), host)
		}
		tell(hostUsed, float64(newest.Memory), host)
		tell(hostIn, float64(newest.Received), host)
		tell(hostOut, float64(newest.Sent), host)
	}
	told := map[int]bool{}
	for _, g := range u.GPUs {
		if told[g.Index] {
			continue
		}
		told[g.Index] = true
		index := strconv.Itoa(g.Index)
		tell(gpuInfo, 1, host, index, g.Name)
		for _, v := range []struct {
			metric *metric
			known  bool // false for a negative value, which means that nvidia-smi reported none
			value  float64
		}{
			{gpuUse, g.Percent >= 0, float64(g.Percent) / 100},
			{gpuUsed, g.MemoryUsed >= 0, float64(g.MemoryUsed)},
			{gpuMemory, g.MemoryTotal >= 0, float64(g.MemoryTotal)},
			{gpuHeat, g.Temperature >= 0, float64(g.Temperature)},
			{gpuPower, g.Power >= 0, g.Power},
		} {
			if v.known {
				tell(v.metric, v.value, host, index)
			}
		}
	}
}

// own returns the dedicated metric for a value such as step or epoch. It
// returns nil for a value that plx exports as plx_task_metric.
func own(name string) *metric {
	switch name {
	case metrics.Step:
		return taskStep
	case metrics.Steps:
		return taskSteps
	case metrics.Epoch:
		return taskEpoch
	case metrics.Epochs:
		return taskEpochs
	}
	return nil
}

// task sends the state of a task and its reported values to the registry.
func task(tell teller, t Task) {
	tell(taskRuns, truth(t.Runs), t.Host, t.Name)
	if t.Code != nil {
		tell(taskCode, float64(*t.Code), t.Host, t.Name)
	}
	if t.Age > 0 {
		tell(taskAge, t.Age.Seconds(), t.Host, t.Name)
	}
	if t.Idle != nil {
		tell(taskStill, t.Idle.Seconds(), t.Host, t.Name)
	}
	var sample metrics.Sample
	for _, name := range slices.Sorted(maps.Keys(t.Values)) { // a fixed order: if several values could be the loss, each scrape selects the same one
		n := t.Values[name]
		sample = append(sample, metrics.Value{Name: name, Number: n})
		switch m := own(name); {
		case m != nil:
			tell(m, float64(n), t.Host, t.Name)
		case name != "loss" && name != metrics.Rate:
			tell(taskMetric, float64(n), t.Host, t.Name, name)
		}
	}
	if v, ok := live.Loss(sample); ok {
		tell(taskLoss, float64(v.Number), t.Host, t.Name)
	}
	if rate := cmp.Or(t.Rate, float64(t.Values[metrics.Rate])); rate != 0 {
		tell(taskRate, rate, t.Host, t.Name)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds returns the seconds from 1970 until t.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
