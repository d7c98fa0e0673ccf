//go:build linux

package agent

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

func TestInterfaces(t *testing.T) {
	t.Parallel()
	l := newHost(t, 1).dial("start")
	links := call[[]protocol.Interface](l, protocol.DoInterfaces, struct{}{})
	own := func(l protocol.Interface) bool {
		return l.Name == "lo" && l.Up && l.Running && l.Loopback && slices.Contains(l.Addrs, "127.0.0.1/8")
	}
	if !slices.ContainsFunc(links, own) {
		t.Errorf("no loopback interface in %+v", links)
	}
}
