package depot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// kind says what a message is for.
type kind string

// What a task says to the chief, and the chief to a task. A question has a
// number, its answer the same.
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
	chosen   kind = "chosen"   // chief: go on from the manifest in Body, that Holders have; none: begin
	begin    kind = "begin"    // chief: a save has begun; what is wanted for it
	commit   kind = "commit"   // chief: write the manifest in Body
	retain   kind = "retain"   // chief: remove all but the newest Keep
	over     kind = "over"     // chief: the save of ID is done
	abandon  kind = "abandon"  // chief: the save of ID has failed; Remove what there is of it
	bye      kind = "bye"      // chief: nobody needs you any more
)

// What tasks say to each other on connections for files.
const (
	read    kind = "read"   // Length bytes of File.Name of ID from Offset on?
	bytesOf kind = "bytes"  // they follow as chunks, or Err
	copied  kind = "copy"   // File of ID follows as chunks; keep it
	stored  kind = "stored" // it is File now, or Err
)

// message is what depots say to each other.
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
	Offset  int64                     `json:"offset,omitempty"`
	Length  int64                     `json:"length,omitempty"`
	Wanted  *wanted                   `json:"wanted,omitempty"`
	Report  *report                   `json:"report,omitempty"`
	Keep    int                       `json:"keep,omitempty"`
	Remove  bool                      `json:"remove,omitempty"`
	Body    []byte                    `json:"-"` // a manifest, to the byte; it travels behind the JSON
}

// announced is what a folder holds of a checkpoint.
type announced struct {
	ID       string           `json:"id"`
	Manifest string           `json:"manifest,omitempty"` // its SHA-256, "": none that can be read
	Damage   string           `json:"damage,omitempty"`
	Files    map[string]int64 `json:"files,omitempty"` // sizes
}

// wanted is what a save wants of a task.
type wanted struct {
	Pieces bool          `json:"pieces,omitempty"` // it is an owner
	State  bool          `json:"state,omitempty"`  // it carries state
	Buddy  *cluster.Task `json:"buddy,omitempty"`  // who is to have copies
}

// report is a task's part of a save: a file and what is in it, or none.
type report struct {
	State   bool                 `json:"state,omitempty"` // it is of the carried state, not of pieces
	Err     string               `json:"error,omitempty"`
	File    *checkpoint.File     `json:"file,omitempty"`
	Copy    bool                 `json:"copy,omitempty"` // the buddy has it too
	Parts   []checkpoint.Part    `json:"parts,omitempty"`
	Carried []checkpoint.Carried `json:"carried,omitempty"`
	Held    int64                `json:"held,omitempty"` // nanoseconds that the step stood still
}

const (
	maxText     = 16 << 20 // bytes of JSON
	maxManifest = 64 << 20 // bytes behind it
	textSize    = 4        // bytes of the length of the JSON
	maxCause    = 4 << 10  // bytes of an error
)

// encode returns the payload of a message frame.
func (m message) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%s message: %w", m.Kind, err)
	}
	if len(text) > maxText || len(m.Body) > maxManifest {
		return nil, fmt.Errorf("%s message of %d and %d bytes, at most %d and %d fit: are there old checkpoints to remove?",
			m.Kind, len(text), len(m.Body), maxText, maxManifest)
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, textSize+len(text)+len(m.Body)), uint32(len(text)))
	return append(append(b, text...), m.Body...), nil
}

// decode reads what encode returned.
func decode(b []byte) (m message, err error) {
	if len(b) < textSize {
		return m, errors.New("message cut short")
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[textSize:]
	if n > maxText || int(n) > len(b) || len(b)-int(n) > maxManifest {
		return m, fmt.Errorf("message with %d of %d bytes of JSON", n, len(b))
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, fmt.Errorf("message: %w", err)
	}
	if len(b) > int(n) {
		m.Body = b[n:]
	}
	return m, nil
}

// sendMessage sends m alone.
func sendMessage(conn *wire.Conn, m message) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	return conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Message}, Payload: b})
}

// receiveMessage returns the next frame, a message of at most so many bytes.
func receiveMessage(conn *wire.Conn, most uint64) (message, error) {
	h, err := conn.Next()
	if err != nil {
		return message{}, err
	}
	if h.Kind != wire.Message || h.Length > most {
		return message{}, fmt.Errorf("unexpected %s frame of %d bytes", h.Kind, h.Length)
	}
	b := make([]byte, h.Length)
	if err := conn.Payload(b); err != nil {
		return message{}, err
	}
	return decode(b)
}

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

// reason is why the chief gives up, nil: it does not.
func (m message) reason() error {
	if m.Err == "" {
		return nil
	}
	return peers.DecodeReport([]byte(m.Err))
}
