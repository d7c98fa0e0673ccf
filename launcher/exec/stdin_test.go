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

// A note says that data on standard input is not sent to the command. Another
// one warns about variables that stay unexpanded.
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
		defer writer.Close() // the write end of the pipe has no data to flush
		var said strings.Builder
		cfg := Config{Reach: hosts.Reach{Via: "false {host}", Hosts: []hostfile.Host{{Name: "h1"}}}, Terminal: console.Terminal{Stdout: &said, Stderr: &said},
			Stdin: stdin, Program: "bash", Args: []string{"-s"}, Env: []string{"L=/x:$L"}, Lease: time.Minute}
		if code, err := Run(t.Context(), cfg, nil); code != 125 || err != nil { // 125, because the host cannot be reached
			t.Fatalf("%d, %v", code, err)
		}
		if strings.Contains(said.String(), stdinNote) != (text != "") || !strings.Contains(said.String(), "note: variable L: the $") {
			t.Errorf("with %q on stdin:\n%s", text, said.String())
		}
	}
}
