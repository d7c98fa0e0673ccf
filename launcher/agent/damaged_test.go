//go:build linux

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// If a job's state file is damaged or has grown to 1 GiB, its logs and outputs
// can still be read. The agent reports the damage without reading all of the
// file.
func TestDamagedState(t *testing.T) {
	h := newHost(t, 1, "flood", "1600")
	l, _ := h.launch()
	l.exits(1)
	l.end(h, 0)
	request, err := json.Marshal(logs.Request{TailLines: -1})
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(state string) error{
		"cut off": func(state string) error { return os.WriteFile(state, []byte(`{"job":`), 0o600) },
		"1 GiB":   func(state string) error { return os.Truncate(state, 1<<30) },
	} {
		state, old := h.folder().State(), time.Now().Add(-time.Hour)
		if err := errors.Join(damage(state), os.Chtimes(state, old, old)); err != nil {
			t.Fatal(err)
		}
		const told = "the agent's state is damaged: "
		cmd := h.command("logs", h.spec.Job, h.spec.Folder)
		var out, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(request, '\n')), &out, &stderr
		if err := cmd.Run(); err == nil || strings.Count(stderr.String(), told) != 1 {
			t.Errorf("%s: logs: %v, %q", name, err, stderr.String())
		}
		n := int64(0)
		for _, got := range bytesOf(t, &out) {
			n += got.bytes
		}
		if n < 1600 {
			t.Errorf("%s: logs has printed %d bytes", name, n)
		}
		l := h.dial("start")
		list, failed := l.pipe(protocol.DoFetch, protocol.FetchRequest{HostJob: h.named(), Wanted: protocol.Wanted{Made: true}})
		if failed != nil || strings.Count(list, told) != 1 || !strings.Contains(list, `"place":"`+protocol.LogsPlace+`"`) {
			t.Errorf("%s: fetch lists %q, %v", name, list, failed)
		}
		if err := l.call(protocol.DoConnect, h.named()).Err; err == nil || err.Code != protocol.CodeNoAgent || !strings.Contains(err.Text, told) {
			t.Errorf("%s: connect: %+v", name, err)
		}
		l.conn.Close()
		<-l.ended
	}
}

// A damaged state file that was changed recently may belong to a running
// agent, which will rewrite it.
func TestDamagedStateOfAnAgent(t *testing.T) {
	h := newHost(t, 1)
	f := h.folder()
	if err := errors.Join(os.MkdirAll(filepath.Dir(f.State()), 0o700), os.WriteFile(f.State(), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := h.ask(protocol.DoConnect).Err; err == nil || err.Code != "" || !strings.Contains(err.Text, "try again then") {
		t.Errorf("%+v", err)
	}
}
