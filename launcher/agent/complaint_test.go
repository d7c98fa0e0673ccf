//go:build linux

package agent

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// The Exit of a program without plx's trainer has the reason from its error
// file or the last lines of its stderr.
func TestExitReportsForeignProgramsReason(t *testing.T) {
	const report = `printf '{"message": {"message": "ValueError: no data", "extraInfo": {"py_callstack": "Traceback\\nValueError: no data\\n"}}}' > "$TORCHELASTIC_ERROR_FILE"; `
	for name, test := range map[string]struct {
		script            string
		cause, tail, lost string
	}{
		"a file":            {report + "exit 1", "ValueError: no data", "Traceback\nValueError: no data\n", ""},
		"a file and stderr": {report + "echo 'ValueError: no data' >&2; exit 1", "ValueError: no data", "ValueError: no data\n", ""},
		"garbage":           {`head -c 2000000 /dev/zero > "$TORCHELASTIC_ERROR_FILE"; echo why >&2; exit 1`, "", "why\n", ""},
		"success":           {report + "exit 0", "", "", ""},
		"a lost peer": {"echo 'RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.77.0.2]:9629' >&2; exit 1", "",
			"RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.77.0.2]:9629\n", "a peer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			h.spec.Command = protocol.Command{Name: "sh", Args: []protocol.Raw{"-c", protocol.Raw(test.script)}}
			l, _ := h.launch()
			e := h.exitOf(worker(0))
			if e.Cause != test.cause || e.Tail != test.tail || e.LostPeer != test.lost || !strings.HasSuffix(test.script, map[int]string{0: "0", 1: "1"}[e.Code]) {
				t.Errorf("%+v", e)
			}
			l.end(h, 0)
		})
	}
}
