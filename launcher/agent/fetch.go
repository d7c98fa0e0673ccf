//go:build linux

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/outputs"
	"github.com/plx-run/plx/launcher/protocol"
)

// aliveEvery is the interval of empty messages to the launcher. They show that
// a slow listing of files is still in progress.
const aliveEvery = 5 * time.Second

// fetch serves one request about a job's output files: list them, send one,
// count those not fetched yet, or record which were fetched.
func fetch(want protocol.FetchRequest, to *protocol.Answering) error {
	if want.Name == "" {
		defer repeat(aliveEvery, func() bool { return to.Send(1, nil) == nil })() // if Send fails, this stops; the next write of fetch to the launcher then fails too, and reports the error
	}
	if want.Checkpoints != "" {
		return sendCheckpoints(want, to)
	}
	f, err := jobfolder.Of(want.Job, want.Folder)
	if err != nil {
		return err
	}
	_, unread := readState(f)
	if unread != nil && !errors.Is(unread, jobfolder.ErrDamaged) {
		return unread
	}
	lines := json.NewEncoder(to)
	switch {
	case want.Name != "":
		file, err := outputs.Open(f, want.Wanted, want.Place, want.Name)
		if err != nil {
			return fmt.Errorf("open output: %w", err)
		}
		defer file.Close() // the file was only read
		return copyPart(to, file, want.Offset, want.Size)
	case want.Fetched != nil:
		return outputs.RecordFetched(f, want.Fetched)
	case want.Count:
		_, made, err := outputs.Unfetched(f)
		return errors.Join(err, lines.Encode(made))
	}
	if unread != nil {
		state := protocol.HostOutput{Place: protocol.SharedPlace, Name: filepath.Base(f.State()),
			Damage: unread.Error() + ": the --output patterns of the job are unknown on this host"}
		if err := lines.Encode(state); err != nil {
			return err
		}
	}
	return outputs.List(f, want.Wanted, func(o protocol.HostOutput) error { return lines.Encode(o) })
}

// copyPart copies the bytes from offset up to position size of file to out. A
// size of 0 means up to the end of the file.
func copyPart(out io.Writer, file io.Reader, offset, size int64) (err error) {
	if size == 0 {
		size = math.MaxInt64
	}
	if offset < 0 || size < offset {
		return fmt.Errorf("invalid range of bytes: %d to %d", offset, size)
	}
	if seeker, ok := file.(io.Seeker); ok {
		_, err = seeker.Seek(offset, io.SeekStart)
	} else {
		_, err = io.Copy(io.Discard, io.LimitReader(file, offset))
	}
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{out}, io.LimitReader(file, size-offset), make([]byte, 256<<10))
	}
	return err
}
