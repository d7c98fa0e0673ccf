package launcher

import (
	"os"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/console"
)

// Data on standard input is detected without reading it.
func TestUnreadStdinIsReported(t *testing.T) {
	stdin, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()  // only read
	defer writer.Close() // error ignored: nothing is left to write
	if _, err := writer.WriteString("hi\n"); err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	cfg := Config{Program: "cat", DryRun: true, Stdin: stdin, Terminal: console.Terminal{Stdout: &plan, Stderr: &plan}}
	cfg.LocalHosts, cfg.LocalWorkers = 1, 1
	if _, err := Launch(t.Context(), cfg, nil); err != nil || !strings.Contains(plan.String(), stdinNote) {
		t.Errorf("%v, %s", err, plan.String())
	}
	text := make([]byte, 8)
	if n, err := stdin.Read(text); string(text[:n]) != "hi\n" {
		t.Errorf("%q, %v: the text is gone", text[:n], err)
	}
}
