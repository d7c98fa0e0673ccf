//go:build linux

package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plx-run/plx/launcher/protocol"
)

// Descriptors that watchdog and supervisor inherit after the standard ones.
const (
	specFD  = 3 // the Spec, read to its end
	readyFD = 4 // takes one Readiness
	lifeFD  = 5 // supervisor: read end of a pipe that the watchdog holds open
	beatFD  = 6 // supervisor: write end of a pipe that the watchdog reads
)

// Readiness is what the supervisor answers to "plx agent start".
type Readiness struct {
	Socket string `json:"socket,omitempty"` // name of the agent's local socket
	Error  string `json:"error,omitempty"`  // why the agent could not start
}

// Inherited is what a supervisor inherits from its watchdog.
type Inherited struct {
	lost  chan struct{}
	beats *os.File
}

// Inherit takes the descriptors over. It is called once, by the supervisor.
func Inherit() *Inherited {
	in := &Inherited{lost: make(chan struct{}), beats: os.NewFile(beatFD, "beat")}
	go func() {
		defer close(in.lost)
		_, _ = os.NewFile(lifeFD, "watchdog").Read(make([]byte, 1)) // nobody writes: it returns when the watchdog ends
	}()
	return in
}

// Lost is closed when the watchdog has ended.
func (in *Inherited) Lost() <-chan struct{} { return in.lost }

// Beat tells the watchdog that the supervisor is alive.
func (in *Inherited) Beat() {
	_, _ = in.beats.Write([]byte{'.'}) // Lost tells of a watchdog that has ended
}

// Answer tells "plx agent start" how the start went. It is called once.
func Answer(r Readiness) error {
	pipe := os.NewFile(readyFD, "ready")
	return errors.Join(json.NewEncoder(pipe).Encode(r), pipe.Close())
}

// ReceiveSpec reads the job's specification from "plx agent start".
func ReceiveSpec() (protocol.Spec, error) {
	var spec protocol.Spec
	pipe := os.NewFile(specFD, "spec")
	defer pipe.Close() // only read
	text, err := io.ReadAll(io.LimitReader(pipe, protocol.MaxMessage+1))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return spec, fmt.Errorf("read the job's specification: %w", err)
	}
	return spec, nil
}
