package placement

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
)

// hosts parses the lines of a resource file.
func hosts(t *testing.T, text string) []hostfile.Host {
	t.Helper()
	hs, err := hostfile.Parse(strings.NewReader(text), "resources.txt")
	if err != nil {
		t.Fatal(err)
	}
	return hs
}

// gpus returns a probe's report of n working GPUs.
func gpus(n int) *gpuprobe.Report {
	r := &gpuprobe.Report{GPUTool: gpuprobe.ToolSMI}
	for i := range n {
		r.GPUs = append(r.GPUs, gpuprobe.GPU{Index: i})
	}
	return r
}

func (p Placement) describe(ms []Machine) string {
	var all []string
	for _, h := range p.Hosts {
		for _, t := range h.Tasks {
			all = append(all, fmt.Sprintf("%s@%s[%s]", t.Task, ms[h.Machine].Name, t.VisibleIDs))
		}
	}
	return strings.Join(all, " ")
}

func TestPlace(t *testing.T) {
	broken := &gpuprobe.Report{GPUTool: gpuprobe.ToolBroken, GPUError: "nvidia-smi failed with status 9: no"}
	hung := &gpuprobe.Report{GPUTool: gpuprobe.ToolHung, GPUError: "nvidia-smi did not answer within 10s", GPUs: gpus(1).GPUs}
	faulty := gpus(2)
	faulty.GPUs[1].Fault = "it has fallen off the bus"
	for _, c := range []struct {
		lines   string
		reports []*gpuprobe.Report
		want    Options
		plan    string // or
		err     string
	}{
		{lines: "a: 1,0\nb", reports: []*gpuprobe.Report{gpus(2), gpus(0)}, plan: "ps:0@a[] worker:0@a[1] worker:1@a[0] ps:1@b[] worker:2@b[]"},
		{lines: "a\nb: ps", reports: []*gpuprobe.Report{gpus(2), gpus(0)}, plan: "ps:0@a[] worker:0@a[0] worker:1@a[1] ps:1@b[]"},
		{lines: "a\nb: ps", reports: []*gpuprobe.Report{gpus(1), gpus(0)}, want: Options{NoServers: true}, plan: "worker:0@a[0]"},
		{lines: "a\nb", reports: []*gpuprobe.Report{gpus(2), gpus(2)}, want: Options{Workers: 3, Servers: []string{"B:22"}}, plan: "worker:0@a[0] worker:1@a[1] ps:0@b[] worker:2@b[0]"},
		{lines: "a\nb", reports: []*gpuprobe.Report{gpus(2), gpus(2)}, want: Options{Workers: 2}, plan: "ps:0@a[] worker:0@a[0] worker:1@a[1]"},
		{lines: "a exclude=0\nb slots=2", reports: []*gpuprobe.Report{gpus(2), gpus(3)}, want: Options{NoServers: true, VisibleHost: true}, plan: "worker:0@a[1] worker:1@b[0,1] worker:2@b[0,1]"},
		{lines: "a: cpu", reports: []*gpuprobe.Report{gpus(4)}, want: Options{PerHost: 3, NoServers: true}, plan: "worker:0@a[] worker:1@a[] worker:2@a[]"},
		{lines: "a slots=2", reports: []*gpuprobe.Report{gpus(0)}, want: Options{NoServers: true}, plan: "worker:0@a[] worker:1@a[]"},
		{lines: "a: 0,3", reports: []*gpuprobe.Report{gpus(2)}, err: "resources.txt:1: host a: no GPU 3: the host has 0, 1"},
		{lines: "a: 0,1", reports: []*gpuprobe.Report{faulty}, err: "resources.txt:1: host a: GPU 1 cannot be used: it has fallen off the bus"},
		{lines: "a", reports: []*gpuprobe.Report{faulty}, err: "host a: GPU 1 cannot be used"},
		{lines: "a exclude=1", reports: []*gpuprobe.Report{faulty}, want: Options{NoServers: true}, plan: "worker:0@a[0]"},
		{lines: "a exclude=7", reports: []*gpuprobe.Report{gpus(2)}, err: "host a: no GPU 7: the host has 0, 1, so it cannot be excluded"},
		{lines: "a exclude=0", reports: []*gpuprobe.Report{gpus(1)}, err: "every GPU found there is excluded"},
		{lines: "a", reports: []*gpuprobe.Report{broken}, err: "host a: which GPUs it has is not known: nvidia-smi failed with status 9"},
		{lines: "x: cpu\na slots=1", reports: []*gpuprobe.Report{gpus(0), hung}, err: "resources.txt:2: host a: which GPUs it has is not known: nvidia-smi did not answer"},
		{lines: "a: 0", reports: []*gpuprobe.Report{hung}, want: Options{NoServers: true}, plan: "worker:0@a[0]"},
		{lines: "a: cpu", reports: []*gpuprobe.Report{broken}, want: Options{NoServers: true}, plan: "worker:0@a[]"},
		{lines: "a slots=3", reports: []*gpuprobe.Report{gpus(2)}, err: "slots=3, but it has 2 GPUs"},
		{lines: "a", reports: []*gpuprobe.Report{gpus(2)}, want: Options{Workers: 3}, err: "3 workers were asked for with -n, the hosts have devices for 2"},
		{lines: "a", reports: []*gpuprobe.Report{gpus(2)}, want: Options{PerHost: 3}, err: "host a: 3 workers were asked for"},
		{lines: "a: ps", reports: []*gpuprobe.Report{gpus(2)}, err: "no host has a device for a worker"},
		{lines: "a", reports: []*gpuprobe.Report{gpus(2)}, want: Options{Servers: []string{"c"}}, err: "--ps c: no such host"},
	} {
		var ms []Machine
		for i, h := range hosts(t, c.lines) {
			ms = append(ms, Machine{Host: h, Report: c.reports[i]})
		}
		p, err := Place(ms, c.want)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q %+v: error %v, want %q", c.lines, c.want, err, c.err)
		case c.err == "" && (err != nil || p.describe(ms) != c.plan):
			t.Errorf("%q %+v:\n got %s, %v\nwant %s", c.lines, c.want, p.describe(ms), err, c.plan)
		}
	}
}
