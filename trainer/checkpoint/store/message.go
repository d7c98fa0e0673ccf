package store

import (
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// kind says what a message is for.
type kind string

// The kinds of messages, by who sends them. A question has a number, and its
// answer has the same.
const (
	hello    kind = "hello"    // task: Token is in its folder, and Holding
	answer   kind = "answer"   // task: what it was asked, or Err
	reported kind = "report"   // task: Report, its part of a save, is done or has failed
	restored kind = "restored" // task: will read no more
	leave    kind = "leave"    // task: is about to end
	look     kind = "look"     // chief: which of Tokens do you see?
	joined   kind = "joined"   // chief: all tasks are there
	fetch    kind = "fetch"    // chief: the manifest of ID?
	verify   kind = "verify"   // chief: is File of ID what it should be?
	chosen   kind = "chosen"   // chief: resume from the manifest in Body, whose files Holders have; empty: begin anew
	begin    kind = "begin"    // chief: a save has begun; what is wanted for it
	commit   kind = "commit"   // chief: write the manifest in Body
	retain   kind = "retain"   // chief: remove all but the newest Keep
	over     kind = "over"     // chief: the save of ID is done
	abandon  kind = "abandon"  // chief: the save of ID has failed; Remove what there is of it
	bye      kind = "bye"      // chief: nobody needs you any more
)

// message is what a task and the chief tell each other.
type message struct {
	Kind    kind                      `json:"kind"`
	Number  uint64                    `json:"number,omitempty"`
	Err     string                    `json:"error,omitempty"`
	ID      string                    `json:"id,omitempty"`
	Step    uint64                    `json:"step,omitempty"`
	Token   string                    `json:"token,omitempty"`
	Tokens  []string                  `json:"tokens,omitempty"`
	Holding []announced               `json:"holding,omitempty"`
	Holders map[string][]cluster.Task `json:"holders,omitempty"` // by file
	File    *checkpoint.File          `json:"file,omitempty"`
	Wanted  *wanted                   `json:"wanted,omitempty"`
	Report  *report                   `json:"report,omitempty"`
	Keep    int                       `json:"keep,omitempty"`
	Remove  bool                      `json:"remove,omitempty"`
	Body    []byte                    `json:"body,omitempty"` // a manifest, to the byte
}

// announced is what a folder holds of a checkpoint.
type announced struct {
	ID       string           `json:"id"`
	Manifest string           `json:"manifest,omitempty"` // SHA-256 of the manifest; empty: none that can be read
	Damage   string           `json:"damage,omitempty"`   // why there is no manifest
	Files    map[string]int64 `json:"files,omitempty"`    // sizes in bytes, by name
}

// wanted is what a save wants of a task.
type wanted struct {
	Pieces bool          `json:"pieces,omitempty"` // of the variables that the task holds
	State  bool          `json:"state,omitempty"`  // that the worker carries
	Buddy  *cluster.Task `json:"buddy,omitempty"`  // who keeps second copies; nil: nobody
}

// report is a task's part of a save: a file and what is in it, or none.
type report struct {
	State   bool                 `json:"state,omitempty"` // of the carried state, not of pieces
	Err     string               `json:"error,omitempty"`
	File    *checkpoint.File     `json:"file,omitempty"`
	Copy    bool                 `json:"copy,omitempty"` // the buddy has it too, or has failed to keep it
	Parts   []checkpoint.Part    `json:"parts,omitempty"`
	Carried []checkpoint.Carried `json:"carried,omitempty"`
	Held    int64                `json:"held,omitempty"` // nanoseconds that the step stood still, zero for carried state
}

const (
	maxManifest = 64 << 20                 // bytes
	maxMessage  = 16<<20 + maxManifest/3*4 // bytes: a manifest travels as base64
	maxCause    = 4 << 10                  // bytes of an error
)

// failure is err as it travels, "" for none.
func failure(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if text == "" {
		text = "unknown"
	}
	return text[:min(len(text), maxCause)]
}

// reason is why the chief gives up; nil: it does not.
func (m message) reason() error {
	if m.Err == "" {
		return nil
	}
	return peers.DecodeReport([]byte(m.Err))
}
