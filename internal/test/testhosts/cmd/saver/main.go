// Command saver is a task that keeps checkpoints as a trainer program does and
// trains nothing. It shows what the launcher makes of them:
//
//	plx launch saver [--refuse CAUSE | --hang] FOLDER
//
// Each worker writes its own file of a checkpoint of step 5 and the manifest,
// and prints which checkpoints its host had before. Asked for a checkpoint, the
// chief writes one of step 7 whole, or refuses with the cause, or says nothing.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

func main() {
	refuse := flag.String("refuse", "", "why no checkpoint is made when asked for one")
	hang := flag.Bool("hang", false, "never answer when asked for one")
	flag.Parse()
	c, ok, err := cluster.FromEnvironment(os.Getenv)
	if err == nil && !ok {
		err = fmt.Errorf("no launcher")
	}
	s := saver{contract: c, folder: filepath.Join(c.Checkpoints, flag.Arg(0)), refuse: *refuse, hang: *hang}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type saver struct {
	contract cluster.Contract
	folder   string // of the checkpoints
	refuse   string // cause of the refusal to save; "": the program saves
	hang     bool   // never answer a request to save
}

// run ends when the agent says stop.
func (s saver) run() error {
	control, err := s.contract.Control()
	if err != nil {
		return err
	}
	if err := control.Send(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion}); err != nil {
		return err
	}
	go beat(control)
	if s.contract.Task.Role == cluster.Worker {
		if err := s.begin(); err != nil {
			return err
		}
	}
	for {
		m, err := control.Receive()
		if err != nil {
			return err
		}
		switch m.Kind {
		case cluster.Checkpoint:
			fmt.Println("asked")
			if s.hang {
				continue
			}
			err = control.Send(s.save())
		case cluster.Stop:
			return control.Send(cluster.ControlMessage{Kind: cluster.Finished})
		}
		if err != nil {
			return err
		}
	}
}

// beat shows that the task goes on, until it ends.
func beat(control *cluster.Control) {
	for range time.Tick(time.Second) {
		if control.Send(cluster.ControlMessage{Kind: cluster.Heartbeat}) != nil {
			return
		}
	}
}

func (s saver) begin() error {
	had, err := filepath.Glob(filepath.Join(s.folder, "*", "manifest.json"))
	if err != nil {
		return err
	}
	for i, path := range had {
		had[i] = filepath.Base(filepath.Dir(path))
	}
	if err := s.write(5, s.contract.Task); err != nil {
		return err
	}
	fmt.Printf("had [%s]\n", strings.Join(had, " "))
	return nil
}

// save answers for the chief.
func (s saver) save() cluster.ControlMessage {
	m := cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 7, Cause: s.refuse}
	if m.Cause != "" {
		return m
	}
	if err := s.write(7, s.workers()...); err != nil {
		m.Cause = err.Error()
	}
	return m
}

func (s saver) workers() (all []cluster.Task) {
	for i := range s.contract.WorldSize {
		all = append(all, cluster.Task{Role: cluster.Worker, Index: i})
	}
	return all
}

// write writes files of a checkpoint and its manifest. All that is in them
// follows from the step and the tasks, so that hosts agree.
func (s saver) write(step int, tasks ...cluster.Task) error {
	folder := filepath.Join(s.folder, fmt.Sprintf("%012d-g0-0123abcd", step))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, t := range tasks {
		if err := os.WriteFile(filepath.Join(folder, name(t)), content(step, t), 0o600); err != nil {
			return err
		}
	}
	var files []map[string]any
	for _, t := range s.workers() {
		files = append(files, map[string]any{"name": name(t), "task": t, "size": len(content(step, t)), "sum": sum(content(step, t))})
	}
	body, err := json.Marshal(map[string]any{"files": files, "step": step})
	if err != nil {
		return err
	}
	manifest := fmt.Sprintf("{\"sum\":%q,\"checkpoint\":%s}\n", sum(body), body)
	return os.WriteFile(filepath.Join(folder, "manifest.json"), []byte(manifest), 0o600)
}

func name(t cluster.Task) string { return fmt.Sprintf("%s-%d.safetensors", t.Role, t.Index) }

func content(step int, t cluster.Task) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%s at step %d\n", t, step), 50_000))
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
