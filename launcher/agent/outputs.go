//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/outputs"
	"github.com/plx-run/plx/launcher/protocol"
)

// sendOutputs lists the files that the job has made, sends one, counts them, or notes which were
// fetched.
func sendOutputs(_ context.Context, want protocol.OutputRequest, _ io.Reader, to io.Writer) error {
	f, err := jobfolder.Of(want.Job, want.Folder)
	if err != nil {
		return err
	}
	if _, err := readState(f); err != nil {
		return err
	}
	switch {
	case want.Name != "":
		file, err := outputs.Open(f, want.Wanted, want.Place, want.Name)
		if err != nil {
			return fmt.Errorf("open output: %w", err)
		}
		defer file.Close() // only read
		return copyPart(to, file, want.Offset, want.Size)
	case want.Fetched != nil:
		return outputs.Note(f, want.Fetched)
	case want.Count:
		_, made, err := outputs.Unfetched(f)
		return errors.Join(err, json.NewEncoder(to).Encode(made))
	}
	out := &alive{to: to}
	defer repeat(aliveEvery, func() bool { // if it fails, the next line fails too
		_, err := out.Write([]byte("\n"))
		return err == nil
	})()
	lines := json.NewEncoder(out)
	return outputs.List(f, want.Wanted, func(o protocol.HostOutput) error { return lines.Encode(o) })
}

// aliveEvery is the time between two empty lines, which show the reader that work goes on.
const aliveEvery = 5 * time.Second

// alive takes whole lines from several goroutines.
type alive struct {
	mu sync.Mutex
	to io.Writer
}

func (a *alive) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Write(p)
}
