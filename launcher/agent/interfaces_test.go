//go:build linux

package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

func TestInterfaces(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := Main(t.Context(), []string{"interfaces"}, nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	var links []protocol.Interface
	if err := json.Unmarshal(stdout.Bytes(), &links); err != nil {
		t.Fatal(err)
	}
	own := func(l protocol.Interface) bool {
		return l.Name == "lo" && l.Up && l.Running && l.Loopback && slices.Contains(l.Addrs, "127.0.0.1/8")
	}
	if !slices.ContainsFunc(links, own) {
		t.Errorf("no loopback interface in %s", &stdout)
	}
	if code := Main(t.Context(), []string{"interfaces", "eth0"}, nil, &stdout, &stderr); code != codeUsage {
		t.Errorf("with an argument: exit status %d", code)
	}
}
