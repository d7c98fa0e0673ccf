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

// printOutputs is "agent outputs JOB FOLDER": it reads a protocol.OutputRequest, and lists
// the files that the job has made, prints one, counts them, or notes which were fetched.
func printOutputs(_ context.Context, f jobfolder.Folder, std streams) error {
	var want protocol.OutputRequest
	if err := readRequest(std.in, &want); err != nil {
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
		_, err = io.Copy(std.out, file)
		return err
	case want.Fetched != nil:
		return outputs.Note(f, want.Fetched)
	case want.Count:
		_, made, err := outputs.Unfetched(f)
		return errors.Join(err, json.NewEncoder(std.out).Encode(made))
	}
	out := keepAlive(std.out)
	defer out.close()
	lines := json.NewEncoder(out)
	return outputs.List(f, want.Wanted, func(o protocol.HostOutput) error { return lines.Encode(o) })
}

// alive writes an empty line now and then, so that the reader sees that work goes on.
type alive struct {
	mu        sync.Mutex
	to        io.Writer
	ended     chan struct{}
	goroutine sync.WaitGroup
}

// aliveEvery is the time between two empty lines.
const aliveEvery = 5 * time.Second

func keepAlive(to io.Writer) *alive {
	a := &alive{to: to, ended: make(chan struct{})}
	a.goroutine.Go(func() {
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-a.ended:
				return
			case <-tick.C:
				if _, err := a.Write([]byte("\n")); err != nil {
					return // the next line fails too
				}
			}
		}
	})
	return a
}

func (a *alive) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Write(p)
}

func (a *alive) close() {
	close(a.ended)
	a.goroutine.Wait()
}
