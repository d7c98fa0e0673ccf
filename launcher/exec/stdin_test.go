package exec

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
)

// TestReportL3Stdin: a note says that what waits on standard input does not reach the command,
// and one on variables of this call that stay as they are (report l6).
func TestReportL3Stdin(t *testing.T) {
	for _, text := range []string{"hostname\n", ""} {
		stdin, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close() // only read
		if _, err := writer.WriteString(text); err != nil {
			t.Fatal(err)
		}
		defer writer.Close() // nothing is left to write
		var said strings.Builder
		cfg := Config{Reach: hosts.Reach{Via: "false {host}", Hosts: []hostfile.Host{{Name: "h1"}}}, Terminal: console.Terminal{Stdout: &said, Stderr: &said},
			Stdin: stdin, Program: "bash", Args: []string{"-s"}, Env: []string{"L=/x:$L"}, Lease: time.Minute}
		if code, err := Run(t.Context(), cfg, nil); code != 125 || err != nil { // the host cannot be reached
			t.Fatalf("%d, %v", code, err)
		}
		if strings.Contains(said.String(), stdinNote) != (text != "") || !strings.Contains(said.String(), "note: variable L: the $") {
			t.Errorf("with %q on stdin:\n%s", text, said.String())
		}
	}
}
