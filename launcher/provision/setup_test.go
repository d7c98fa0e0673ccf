package provision

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/launcher/console"
)

// If the output is a pipe and --setup takes longer than 2 s, plx prints the
// last line of a host's output.
func TestSetupShowsItsNewestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		tally := console.NewPrinter(console.Terminal{Stderr: &said}).NewHostProgress("running --setup", 1)
		tally.Begin("h1")
		live := &newest{tally, "h1"}
		kept := new(bytes.Buffer)
		for _, text := range []string{"Collecting torch\n", "Downloading torch.whl\r 7%\r 9%\n", "\n"} {
			io.WriteString(io.MultiWriter(kept, live), text) // neither fails
		}
		time.Sleep(4 * time.Second)
		tally.End("h1")
		if want := "plx: running --setup: 0 of 1 host; waiting for h1 for 2s; h1: 9%\n"; said.String() != want {
			t.Errorf("%q, want %q", said.String(), want)
		}
		if text := kept.String(); !strings.HasPrefix(text, "Collecting torch\n") {
			t.Errorf("kept %q", text)
		}
	})
}
