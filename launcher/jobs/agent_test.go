package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/protocol"
)

// putAgent installs script in a home directory as the executable of a job's
// agent. The script receives the agent's commands and requests as arguments,
// such as "agent state JOB FOLDER".
func putAgent(home, script string) error {
	self, err := os.Executable()
	file := filepath.Join(home, blob)
	return errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o700),
		executable.Write(file+".sh", []byte("#!/bin/sh\necho \"$*\" >> ~/asked\n"+script+"\n"), 0o700),
		executable.Write(file, fmt.Appendf(nil, "#!/bin/sh\n[ \"$*\" != 'agent start' ] || exec %s answers $0.sh\nexec $0.sh \"$@\"\n", self), 0o700))
}

// answerCalls returns a script for putAgent whose agent replies to each
// request with the output of script.
func answerCalls(script string) error {
	conn, err := protocol.OpenCalls(protocol.Duplex(os.Stdin, os.Stdout))
	if err != nil {
		return err
	}
	_, err = protocol.Serve(context.Background(), conn, map[protocol.Method]protocol.Handler{
		protocol.DoSurvey: protocol.Handle(func(context.Context, protocol.Survey) (protocol.Surveyed, error) {
			facts, err := envsync.DescribeHost()
			return protocol.Surveyed{Facts: facts}, err
		}),
		protocol.DoState: protocol.Handle(func(ctx context.Context, of protocol.HostJob) (json.RawMessage, error) {
			return exec.CommandContext(ctx, script, "agent", "state", of.Job, of.Folder).Output()
		}),
		protocol.DoPrune: protocol.Handle(func(ctx context.Context, want protocol.PruneRequest) (a protocol.PruneAnswer, err error) {
			args := []string{"agent", "prune", "--older", want.Older.String()}
			for flag, given := range map[string]bool{"--outputs": want.Discard, "--dry-run": want.Dry} {
				if given {
					args = append(args, flag)
				}
			}
			slices.Sort(args[4:])
			cmd := exec.CommandContext(ctx, script, args...)
			cmd.Stdin = strings.NewReader(strings.Join(want.Keep, " "))
			out, err := cmd.Output()
			if err != nil {
				a.Failed = err.Error()
			}
			for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
				var item protocol.Pruned
				if err := d.Decode(&item); err != nil {
					return a, err
				}
				a.Items = append(a.Items, item)
			}
			return a, nil
		}),
	}, time.Hour)
	return err
}
