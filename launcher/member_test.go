package launcher

import (
	"testing"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// The plan of a joining host can make plx run nothing but an agent.
func TestPlansOfJoiningHostsAreVerified(t *testing.T) {
	good := protocol.Joining{HostPlan: protocol.HostPlan{Host: "h9", Folder: "h9", Line: "h9", Binary: ".plx/blobs/abc"}}
	for name, spoil := range map[string]func(*protocol.Joining){
		"":          func(*protocol.Joining) {},
		"binary":    func(j *protocol.Joining) { j.Binary = "bin/rm" },
		"shell":     func(j *protocol.Joining) { j.Binary = ".plx/blobs/a;rm" },
		"folder":    func(j *protocol.Joining) { j.Folder = "../h9" },
		"name":      func(j *protocol.Joining) { j.Host = "h8" },
		"line":      func(j *protocol.Joining) { j.Line = "h9\nh10" },
		"two lines": func(j *protocol.Joining) { j.Line = "" },
	} {
		j := good
		spoil(&j)
		d := &drive{launch: &launch{set: &hosts.Set{}, printer: console.NewPrinter(console.Terminal{}), job: "j"}}
		if _, err := d.joining(t.Context(), j); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
