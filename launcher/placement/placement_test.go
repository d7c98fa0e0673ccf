package placement

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/trainer/cluster"
)

// machines parses lines of a resource file. After "|", each line has the GPUs
// that the probe found, as in "a: 0,1 | 0 1 2", or "?" if the host was not
// probed.
func machines(t *testing.T, text string) []Machine {
	t.Helper()
	var lines []string
	var ms []Machine
	for line := range strings.Lines(text) {
		line, gpus, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok {
			continue
		}
		lines = append(lines, line)
		var m Machine
		if strings.TrimSpace(gpus) != "?" {
			m.Report = &gpuprobe.Report{}
			for _, word := range strings.Fields(gpus) {
				id, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				m.Report.GPUs = append(m.Report.GPUs, gpuprobe.GPU{Index: id})
			}
		}
		ms = append(ms, m)
	}
	hosts, err := hostfile.ParseLines(lines)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ms {
		ms[i].Host = hosts[i]
	}
	return ms
}

// plan formats a placement: a line for each host, with its tasks, and their
// devices, CUDA_VISIBLE_DEVICES and local ranks.
func plan(ms []Machine, p Placement) string {
	var b strings.Builder
	for _, h := range p.Hosts {
		fmt.Fprintf(&b, "%s:", ms[h.Machine].Name)
		for _, t := range h.Tasks {
			fmt.Fprintf(&b, " %s", t.Task)
			if t.Task.Role == cluster.Worker {
				fmt.Fprintf(&b, "(%s,%s,%d)", strings.ReplaceAll(t.Device, " ", ""), t.VisibleIDs, t.LocalRank)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestPlacement(t *testing.T) {
	const mixed = `
		gpu01: 3,1 | 0 1 2 3
		gpu02      | 0 1
		cpu01      |
		cpu02: cpu*2 | 0 1
		store: ps  | 0
		slot01 slots=2 | 0 1 2
		slot02 slots=2 |`
	for name, c := range map[string]struct {
		resources string
		want      Options
		plan      string
	}{
		"every kind": {mixed, Options{}, `
			gpu01: ps:0 worker:0(gpu3,3,0) worker:1(gpu1,1,1)
			gpu02: ps:1 worker:2(gpu0,0,0) worker:3(gpu1,1,1)
			cpu01: ps:2 worker:4(cpu,,0)
			cpu02: ps:3 worker:5(cpu,,0) worker:6(cpu,,1)
			store: ps:4
			slot01: ps:5 worker:7(gpu0,0,0) worker:8(gpu1,1,1)
			slot02: ps:6 worker:9(cpu,,0) worker:10(cpu,,1)`},
		"no servers": {mixed, Options{NoServers: true, Workers: 5}, `
			gpu01: worker:0(gpu3,3,0) worker:1(gpu1,1,1)
			gpu02: worker:2(gpu0,0,0) worker:3(gpu1,1,1)
			cpu01: worker:4(cpu,,0)`},
		"-n in the middle of a host; a host for servers is kept": {mixed, Options{Workers: 3}, `
			gpu01: ps:0 worker:0(gpu3,3,0) worker:1(gpu1,1,1)
			gpu02: ps:1 worker:2(gpu0,0,0)
			store: ps:2`},
		"servers on hosts with and without workers": {mixed, Options{Workers: 1, Servers: []string{"CPU01", "gpu01"}}, `
			gpu01: ps:0 worker:0(gpu3,3,0)
			cpu01: ps:1`},
		"a server host that is not named gets nothing": {"a: ps | 0\nb | 0", Options{Servers: []string{"b"}}, `
			b: ps:0 worker:0(gpu0,0,0)`},
		"servers by port and address": {"a:2222: 0 | 0\na:2223: 0 | 0\n[fd00::4]: 0 | 0\nb: cpu |", Options{Servers: []string{"a:2223", "[fd00::4]", "b:22"}}, `
			a: worker:0(gpu0,0,0)
			a: ps:0 worker:1(gpu0,0,0)
			fd00::4: ps:1 worker:2(gpu0,0,0)
			b: ps:2 worker:3(cpu,,0)`},
		"visible host": {"a: 3,1 | 1 3\nb | \nc | 0 1 2", Options{NoServers: true, VisibleHost: true, Workers: 5}, `
			a: worker:0(gpu3,3,1,0) worker:1(gpu1,3,1,1)
			b: worker:2(cpu,,0)
			c: worker:3(gpu0,0,1,0) worker:4(gpu1,0,1,1)`},
		"workers per host": {"a | 0 1 2\nb |\nc: cpu |\nd: cpu*4 |\ne: ps | 0 1\nf slots=2 |", Options{NoServers: true, PerHost: 2}, `
			a: worker:0(gpu0,0,0) worker:1(gpu1,1,1)
			b: worker:2(cpu,,0) worker:3(cpu,,1)
			c: worker:4(cpu,,0) worker:5(cpu,,1)
			d: worker:6(cpu,,0) worker:7(cpu,,1)
			f: worker:8(cpu,,0) worker:9(cpu,,1)`},
		"workers per host and -n": {"a | 0 1 2\nb | 0 1", Options{NoServers: true, PerHost: 2, Workers: 3}, `
			a: worker:0(gpu0,0,0) worker:1(gpu1,1,1)
			b: worker:2(gpu0,0,0)`},
		"exclusion": {"a exclude=1 | 0 1 2\nb slots=3 exclude=0,2 | 0 1 2 3", Options{NoServers: true}, `
			a: worker:0(gpu0,0,0) worker:1(gpu2,2,1)
			b: worker:2(gpu1,1,0)`},
		"excluded are GPUs: they take nothing from the cores": {"a slots=3 exclude=0,2 |", Options{NoServers: true}, `
			a: worker:0(cpu,,0) worker:1(cpu,,1) worker:2(cpu,,2)`},
		"dry run": {"a | ?\nb: 4 | ?\nc: cpu*2 | ?\nd slots=3 exclude=1 | ?\ne: ps | ?", Options{}, `
			a: ps:0 worker:0(eachGPUfoundthere,,0)
			b: ps:1 worker:1(gpu4,4,0)
			c: ps:2 worker:2(cpu,,0) worker:3(cpu,,1)
			d: ps:3 worker:4(aGPU,orcpuwherethereisnone,,0) worker:5(aGPU,orcpuwherethereisnone,,1)
			e: ps:4`},
		"dry run with -n: what is not known is not refused": {"a | ?", Options{NoServers: true, Workers: 8}, `
			a: worker:0(eachGPUfoundthere,,0)`},
		"dry run with workers per host": {"a | ?", Options{NoServers: true, PerHost: 2}, `
			a: worker:0(eachGPUfoundthere,,0) worker:1(eachGPUfoundthere,,1)`},
	} {
		ms := machines(t, c.resources)
		p, err := Place(ms, c.want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := plan(ms, p), strings.ReplaceAll(strings.TrimPrefix(c.plan, "\n"), "\t", "")+"\n"; got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

func TestPlacementRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		resources string
		want      Options
		err       string
		code      int
	}{
		"an id the host lacks":             {"a: 0 | 0\nb: 0,7 | 0 1", Options{}, ":2: host b: no GPU 7: the host has 0, 1", exit.CodePlx},
		"an id on a host beyond -n":        {"a: 0 | 0\nb: 7 |", Options{Workers: 1}, ":2: host b: no GPU 7: the host has none", exit.CodePlx},
		"an excluded id the host lacks":    {"a exclude=1,5 | 0 1", Options{}, ":1: host a: no GPU 5: the host has 0, 1, so it cannot be excluded", exit.CodePlx},
		"an exclusion where there is none": {"a exclude=0 |", Options{}, ":1: host a: no GPU 0: the host has none, so it cannot be excluded", exit.CodePlx},
		"everything is excluded":           {"b | 0\na exclude=0,1 | 0 1", Options{}, ":2: host a: every GPU found there is excluded", exit.CodePlx},
		"slots beyond the GPUs":            {"a slots=3 | 0 1", Options{}, ":1: host a: slots=3, but it has 2 GPUs", exit.CodePlx},
		"slots over a gap":                 {"a slots=2 | 0 2", Options{}, ":1: host a: no GPU 1: the host has 0, 2", exit.CodePlx},
		"-n beyond the devices":            {"a | 0 1\nb: ps | 0", Options{Workers: 3}, "3 workers were asked for with -n, the hosts have devices for 2", exit.CodePlx},
		"workers beyond the devices":       {"a | 0 1 2\nb: 0 | 0 1 2", Options{PerHost: 2}, "host b: 2 workers were asked for with --workers-per-host, it has devices for 1", exit.CodePlx},
		"servers only":                     {"a: ps | 0", Options{}, "no host has a device for a worker", exit.CodeUsage},
		"servers on a stranger":            {"a | 0", Options{Servers: []string{"a", "b"}}, "--ps b: no such host", exit.CodeUsage},
		"servers on another port":          {"a:2222: 0 | 0", Options{Servers: []string{"a:22"}}, "--ps a:22: no such host", exit.CodeUsage},
	} {
		_, err := Place(machines(t, c.resources), c.want)
		if err == nil || !strings.Contains(err.Error(), c.err) || exit.Code(err) != c.code {
			t.Errorf("%s: %v (code %d); want %q (code %d)", name, err, exit.Code(err), c.err, c.code)
		}
	}
}

// TestPlacementProperties places tasks on random hosts. It checks the
// properties that programs rely on, and compares the number of workers with a
// simple count.
func TestPlacementProperties(t *testing.T) {
	for seed := range int64(3000) {
		r := rand.New(rand.NewSource(seed))
		ms, count := randomMachines(r)
		want := Options{NoServers: r.Intn(3) == 0, VisibleHost: r.Intn(2) == 0}
		if count > 0 && r.Intn(2) == 0 {
			want.Workers = 1 + r.Intn(count)
			count = want.Workers
		}
		p, err := Place(ms, want)
		if count == 0 {
			if err == nil {
				t.Fatalf("seed %d: placed without a device", seed)
			}
			continue
		}
		if err != nil || p.Workers != count {
			t.Fatalf("seed %d: %d workers, want %d: %v", seed, p.Workers, count, err)
		}
		if wrong := contradiction(ms, p, want); wrong != "" {
			t.Fatalf("seed %d: %s\n%s", seed, wrong, plan(ms, p))
		}
	}
}

func ids(ns ...int) (all []hostfile.ID) {
	for _, n := range ns {
		all = append(all, hostfile.ID(strconv.Itoa(n)))
	}
	return all
}

// randomMachines returns random valid hosts, and the number of workers for
// which they have slots.
func randomMachines(r *rand.Rand) (ms []Machine, count int) {
	for i := range 1 + r.Intn(6) {
		m := Machine{Host: hostfile.Host{Name: fmt.Sprint("h", i)}, Report: gpus(r.Intn(5))}
		gpus := len(m.Report.GPUs)
		switch m.Devices.Kind = hostfile.Kind(r.Intn(5)); m.Devices.Kind {
		case hostfile.AllGPUs:
			if gpus > 1 && r.Intn(2) == 0 {
				m.Devices.Excluded = ids(r.Intn(gpus))
			}
			count += max(1, gpus-len(m.Devices.Excluded))
		case hostfile.GPUs:
			if gpus == 0 {
				continue
			}
			m.Devices.IDs = ids(r.Perm(gpus)[:1+r.Intn(gpus)]...)
			count += len(m.Devices.IDs)
		case hostfile.CPUs:
			m.Devices.Count = 1 + r.Intn(3)
			count += m.Devices.Count
		case hostfile.Slots:
			m.Devices.Count = 1 + r.Intn(max(gpus, 1))
			if gpus == 0 || m.Devices.Count == 1 {
				count += m.Devices.Count
				break
			}
			m.Devices.Excluded = ids(r.Intn(m.Devices.Count))
			count += m.Devices.Count - 1
		}
		ms = append(ms, m)
	}
	return ms, count
}

// contradiction returns what is wrong with a placement, or "" if it is
// correct.
func contradiction(ms []Machine, p Placement, want Options) string {
	rank, server, last := 0, 0, -1
	for _, h := range p.Hosts {
		m := ms[h.Machine]
		if h.Machine <= last {
			return "not in file order"
		}
		last = h.Machine
		used, local := map[string]bool{}, 0
		var all []string
		for _, t := range h.Tasks {
			if t.Task.Role == cluster.PS {
				if t.Task.Index != server || local > 0 || t.VisibleIDs != "" || want.NoServers {
					return "server " + t.Task.String()
				}
				server++
				continue
			}
			if t.Task.Index != rank || t.LocalRank != local {
				return "ranks have a gap at " + t.Task.String()
			}
			if t.Device != "cpu" && used[t.Device] {
				return t.Device + " is used twice"
			}
			used[t.Device] = true
			if id, isGPU := strings.CutPrefix(t.Device, "gpu "); isGPU {
				all = append(all, id)
				if !slices.ContainsFunc(m.Report.Devices(), func(d gpuprobe.Device) bool { return deviceName(d) == t.Device }) || slices.Contains(m.Devices.Excluded, hostfile.ID(id)) {
					return t.Device + " is not to be used"
				}
				if !want.VisibleHost && t.VisibleIDs != id {
					return t.Device + " is not what it sees: " + t.VisibleIDs
				}
			}
			rank++
			local++
		}
		for _, t := range h.Tasks {
			if want.VisibleHost && t.Task.Role == cluster.Worker && t.VisibleIDs != strings.Join(all, ",") {
				return t.Task.String() + " does not see all: " + t.VisibleIDs
			}
		}
	}
	if rank != p.Workers || server != p.Servers {
		return "counts"
	}
	return ""
}

func TestPlacementIsPure(t *testing.T) {
	ms := machines(t, "a: 3,1 | 0 1 2 3\nb slots=4 exclude=0 | 0 1 2 3")
	want := Options{Workers: 4}
	first, err := Place(ms, want)
	if err != nil {
		t.Fatal(err)
	}
	before := plan(ms, first)
	for range 3 {
		again, err := Place(ms, want)
		if err != nil || plan(ms, again) != before {
			t.Errorf("the same resources were placed otherwise: %v\n%s", err, plan(ms, again))
		}
	}
}
