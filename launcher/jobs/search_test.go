package jobs

import (
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// A host that has left a job still stores a state with worker:0 of an older
// generation. This host is not taken for the chief's host.
func TestChiefIsOfTheNewestGeneration(t *testing.T) {
	state := func(host string, generation int, verdict *protocol.Verdict) protocol.State {
		return protocol.State{Job: "j", Folder: host, Generation: generation, Verdict: verdict,
			Tasks: map[string]*protocol.TaskState{"worker:0": {}}}
	}
	f := &hosts.Set{}
	for _, name := range []string{"h1", "h2", "h3"} {
		f.Hosts = append(f.Hosts, hosts.NewHost(hostfile.Host{Name: name}, nil))
	}
	rs := assemble(f, [][]protocol.State{
		{state("h1", 0, &protocol.Verdict{Code: 125})}, {state("h2", 2, &protocol.Verdict{})}, {state("h3", 1, nil)}})
	if len(rs) != 1 || rs[0].Chief != 1 || rs[0].Verdict == nil || rs[0].Verdict.Code != 0 || !rs[0].Restarts {
		t.Errorf("%+v", rs)
	}
}
