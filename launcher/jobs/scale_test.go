package jobs

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestDiffHosts(t *testing.T) {
	have := []protocol.HostPlan{{Host: "a", Folder: "a"}, {Host: "b", Folder: "b_2222"}, {Host: "c", Folder: "c", Left: true}}
	for _, x := range []struct {
		want  []hostfile.Host
		fresh []string
		leave []int
	}{
		{[]hostfile.Host{{Name: "a"}, {Name: "b", Port: 2222}}, nil, nil},
		{[]hostfile.Host{{Name: "a"}, {Name: "b"}}, []string{"b"}, []int{1}},
		{[]hostfile.Host{{Name: "a", User: "u"}, {Name: "b", Port: 2222}, {Name: "c"}}, []string{"c"}, nil}, // host c had left the job and joins again
		{[]hostfile.Host{{Name: "d"}}, []string{"d"}, []int{0, 1}},
	} {
		fresh, leave := diffHosts(x.want, have)
		var names []string
		for _, h := range fresh {
			names = append(names, h.Name)
		}
		if !reflect.DeepEqual(names, x.fresh) || !reflect.DeepEqual(leave, x.leave) {
			t.Errorf("%v: new %v, leaving %v; want %v, %v", x.want, names, leave, x.fresh, x.leave)
		}
	}
}

// canLeave refuses, before anything is copied, the same changes that the
// driver would refuse.
func TestCanLeaveKeepsDriverAndCheckpoint(t *testing.T) {
	have := []protocol.HostPlan{{Host: "a"}, {Host: "b", Drives: true}, {Host: "c", Left: true}}
	for _, x := range []struct {
		leave []int
		want  string // "": they can leave
	}{
		{nil, ""},
		{[]int{0}, ""},
		{[]int{1}, "host b drives the job and cannot leave it"},
	} {
		err := canLeave(have, x.leave)
		if (err == nil) != (x.want == "") || err != nil && (err.Error() != x.want || exit.Hint(err) == "") {
			t.Errorf("%v: %v, want %q", x.leave, err, x.want)
		}
	}
	have[1].Drives = false
	if err := canLeave(have, []int{0, 1}); err == nil || err.Error() != "no host would stay, and the checkpoint is on the old hosts, a, b" || exit.Hint(err) == "" {
		t.Error(err)
	}
}

// New hosts get their tasks by the options of the original launch, which the
// job's agents store: number of workers, parameter servers and visible
// devices.
func TestScaleUsesTheOptionsOfTheLaunch(t *testing.T) {
	for name, x := range map[string]struct {
		launched protocol.Placing
		want     string // tasks of hosts h3 and h4 with their devices
	}{
		"nothing was asked for": {protocol.Placing{}, "ps:0 worker:0=0 worker:1=1|ps:1 worker:2"},
		"-n counted there":      {protocol.Placing{Workers: 1}, "ps:0 worker:0=0 worker:1=1|ps:1 worker:2"},
		"--ps none":             {protocol.Placing{NoServers: true}, "worker:0=0 worker:1=1|worker:2"},
		"--ps of old hosts":     {protocol.Placing{Servers: []string{"h1"}}, "worker:0=0 worker:1=1|worker:2"},
		"--ps of a new host":    {protocol.Placing{Servers: []string{"h1", "h4"}}, "worker:0=0 worker:1=1|ps:0 worker:2"},
		"--workers-per-host":    {protocol.Placing{NoServers: true, PerHost: 1}, "worker:0=0|worker:1"},
		"--visible host":        {protocol.Placing{NoServers: true, VisibleHost: true}, "worker:0=0,1 worker:1=0,1|worker:2"},
	} {
		h3 := hosts.NewHost(hostfile.Host{Name: "h3"}, nil)
		h3.Report = gpuprobe.Report{GPUs: []gpuprobe.GPU{{Index: 0}, {Index: 1}}}
		h4 := hosts.NewHost(hostfile.Host{Name: "h4", Devices: hostfile.Devices{Kind: hostfile.CPUs, Count: 1}}, nil)
		s := &scaler{job: &Job{printer: console.NewPrinter(console.Terminal{Stderr: io.Discard})}, spec: protocol.Spec{Placing: x.launched}, set: &hosts.Set{Hosts: []*hosts.Host{h3, h4}}}
		p, err := s.place()
		var got []string
		for _, h := range p.Hosts {
			var tasks []string
			for _, task := range h.Specs() {
				tasks = append(tasks, strings.TrimSuffix(task.Task.String()+"="+task.Devices, "="))
			}
			got = append(got, strings.Join(tasks, " "))
		}
		if err != nil || strings.Join(got, "|") != x.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, x.want)
		}
	}
}

// The time limit for the driver's reply includes the start time that the
// launch allows.
func TestScaleAllowsTheStartTimeOfTheLaunch(t *testing.T) {
	s := scaler{cfg: ScaleConfig{SaveTime: time.Minute}, spec: protocol.Spec{StartTimeout: time.Hour, Grace: 10 * time.Second, Lease: 30 * time.Second}}
	if got, least := s.replyTimeout(), time.Hour+2*time.Minute+40*time.Second; got < least || got > least+5*time.Minute {
		t.Errorf("%s, want little more than %s", got, least)
	}
}

// A user who interrupts plx scale learns whether the job may still change its
// hosts.
func TestInterruptedScaleReportsTheOutcome(t *testing.T) {
	for asked, want := range map[bool]string{false: "the job is not scaled", true: "either the new or the old hosts, see plx jobs"} {
		if got := (&scaler{asked: asked}).interrupted(); !strings.Contains(got, want) {
			t.Errorf("asked %v: %q, want %q", asked, got, want)
		}
	}
}
