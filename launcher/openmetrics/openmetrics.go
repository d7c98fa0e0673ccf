// Package openmetrics tells programs that collect metrics, such as Prometheus, how a job gets on:
// as text in the format of OpenMetrics, once or over HTTP.
//
//	err := openmetrics.Write(os.Stdout, job)
//	...
//	handler := openmetrics.Handler(func() openmetrics.Job { return newest })
//	err = openmetrics.Serve(ctx, listener, handler) // until ctx ends
//
// It asks no host: what it tells is given to it, so that a scrape waits for nobody.
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

// Job is a job as it is now, or was at its end.
type Job struct {
	ID, Name   string
	State      string // as plx status names it
	Created    time.Time
	Code       *int      // plx's exit status; nil: it runs, or nobody knows
	Generation int       // so many times it was restarted or scaled
	Looked     time.Time // when the hosts were asked
	Hosts      []Host
	Tasks      []Task
}

// States are the states that a job may have.
var States = []string{"running", "done", "failed", "stopped", "hung", "lost", "unknown"}

// Host is a host of the job.
type Host struct {
	Name string
	Up   bool              // it has answered
	Use  *protocol.HostUse // nil: not known
}

// Task is a task of the job.
type Task struct {
	Name, Host string
	Runs       bool
	Code       *int           // exit status; nil: it has not ended, or nobody knows
	Age        time.Duration  // 0: not known
	Still      *time.Duration // for how long nothing of it has moved; nil: not known
	Values     map[string]metrics.Number
	Rate       float64 // steps a second as plx has measured them; 0: not known
}

// Write writes what is known of a job as OpenMetrics.
func Write(w io.Writer, j Job) error {
	return write(w, j, expfmt.NewFormat(expfmt.TypeOpenMetrics))
}

// write writes in a format that a reader has asked for.
func write(w io.Writer, j Job, format expfmt.Format) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector{j}); err != nil {
		return fmt.Errorf("make the metrics: %w", err)
	}
	// What hosts tell may be wrong in itself. Gather returns the rest then, which is of use.
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
	if end, ok := encoder.(expfmt.Closer); ok { // OpenMetrics ends with a mark
		if err := end.Close(); err != nil {
			return fmt.Errorf("write the metrics: %w", err)
		}
	}
	return nil
}

// collector makes the metrics of a job. Which ones there are depends on what the job tells.
type collector struct{ job Job }

// Describe describes nothing: the registry then takes whatever Collect makes.
func (collector) Describe(chan<- *prometheus.Desc) {}

// metric is a metric with its labels beside that of the job. These are data and no descriptions of
// the library: each start of plx on a host would make those.
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
	jobLooked  = &metric{"last_look_timestamp_seconds", "When plx asked the hosts, in seconds since 1970.", nil}
	hostUp     = &metric{"host_up", "1 if the host has answered, else 0.", []string{"host"}}
	hostCPU    = &metric{"host_cpu_ratio", "How much of the host's processors is busy, from 0 to 1.", []string{"host"}}
	hostCPUs   = &metric{"host_cpus", "Processors of the host.", []string{"host"}}
	hostLoad   = &metric{"host_load1", "Load of the last minute, as the kernel tells it.", []string{"host"}}
	hostUsed   = &metric{"host_memory_used_bytes", "Memory of the host that is not available to programs.", []string{"host"}}
	hostMemory = &metric{"host_memory_bytes", "Memory of the host.", []string{"host"}}
	hostIn     = &metric{"host_network_receive_bytes_per_second", "What the host receives through all interfaces but the loopback.", []string{"host"}}
	hostOut    = &metric{"host_network_transmit_bytes_per_second", "What the host sends through all interfaces but the loopback.", []string{"host"}}
	gpuInfo    = &metric{"gpu_info", "A GPU of the host and its model; always 1.", []string{"host", "gpu", "model"}}
	gpuUse     = &metric{"gpu_ratio", "How much of the time the GPU is busy, from 0 to 1.", []string{"host", "gpu"}}
	gpuUsed    = &metric{"gpu_memory_used_bytes", "Memory of the GPU that is used.", []string{"host", "gpu"}}
	gpuMemory  = &metric{"gpu_memory_bytes", "Memory of the GPU.", []string{"host", "gpu"}}
	gpuHeat    = &metric{"gpu_temperature_celsius", "Temperature of the GPU.", []string{"host", "gpu"}}
	gpuPower   = &metric{"gpu_power_watts", "Power that the GPU takes.", []string{"host", "gpu"}}
	taskRuns   = &metric{"task_running", "1 if the task runs, else 0.", []string{"host", "task"}}
	taskCode   = &metric{"task_exit_code", "Exit status of the task, once it has ended.", []string{"host", "task"}}
	taskAge    = &metric{"task_age_seconds", "For how long the task has run.", []string{"host", "task"}}
	taskStill  = &metric{"task_still_seconds", "For how long nothing of the task has moved: no output, no step, no bytes, no processor time.", []string{"host", "task"}}
	taskStep   = &metric{"task_step", "Newest step of the task.", []string{"host", "task"}}
	taskSteps  = &metric{"task_steps", "Steps to be made, as the task tells them.", []string{"host", "task"}}
	taskEpoch  = &metric{"task_epoch", "Newest epoch of the task.", []string{"host", "task"}}
	taskEpochs = &metric{"task_epochs", "Epochs to be made, as the task tells them.", []string{"host", "task"}}
	taskRate   = &metric{"task_steps_per_second", "Steps a second, as plx measures them over half a minute, else as the task tells them.", []string{"host", "task"}}
	taskLoss   = &metric{"task_loss", "Newest loss: that of the name loss, else the first one that has the word in its name.", []string{"host", "task"}}
	taskMetric = &metric{"task_metric", "Newest value of each further name that the task has reported.", []string{"host", "task", "metric"}}
)

// Collect makes the metrics.
func (c collector) Collect(to chan<- prometheus.Metric) {
	j := c.job
	descs := map[*metric]*prometheus.Desc{}
	tell := func(m *metric, value float64, labels ...string) {
		if descs[m] == nil {
			descs[m] = prometheus.NewDesc("plx_"+m.name, m.help, append([]string{"job"}, m.labels...), nil)
		}
		for i, l := range labels {
			labels[i] = strings.ToValidUTF8(logs.Escape(l), "\uFFFD") // names come from hosts and programs
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
	if !j.Looked.IsZero() {
		tell(jobLooked, seconds(j.Looked))
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

// teller tells the value of a metric.
type teller func(m *metric, value float64, labels ...string)

// use tells how much of a host is used.
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
			known  bool // a number that the tool does not tell is negative
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

// own returns the metric of a value whose name has a meaning of its own; nil: it has none.
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

// task tells what a task does and has reported.
func task(tell teller, t Task) {
	tell(taskRuns, truth(t.Runs), t.Host, t.Name)
	if t.Code != nil {
		tell(taskCode, float64(*t.Code), t.Host, t.Name)
	}
	if t.Age > 0 {
		tell(taskAge, t.Age.Seconds(), t.Host, t.Name)
	}
	if t.Still != nil {
		tell(taskStill, t.Still.Seconds(), t.Host, t.Name)
	}
	var sample metrics.Sample
	for _, name := range slices.Sorted(maps.Keys(t.Values)) { // the same loss at each scrape
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

// seconds are those since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
