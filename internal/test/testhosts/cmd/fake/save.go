package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// save writes checkpoints as a training program does, but does not train. With
// it, tests check how the launcher handles checkpoints. Each worker writes its
// own file of a checkpoint of step 5, and the manifest, and prints which
// checkpoints its host had before. When plx requests a checkpoint, the chief
// writes a complete checkpoint of step 7. With --refuse it returns an error
// instead, and with --mute it does not respond. The program ends when the
// agent, which started it, tells it to stop.
func save() error {
	c, ok, err := cluster.FromEnvironment(os.Getenv)
	if err == nil && !ok {
		err = errors.New("no launcher")
	}
	if err != nil {
		return err
	}
	control, err := c.Control()
	if err != nil {
		return err
	}
	if err := control.Send(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion}); err != nil {
		return err
	}
	go func() { // The goroutine sends heartbeats until the task ends.
		for range time.Tick(time.Second) {
			if control.Send(cluster.ControlMessage{Kind: cluster.Heartbeat}) != nil {
				return
			}
		}
	}()
	had, err := filepath.Glob(filepath.Join(c.Checkpoints, flag.Arg(0), "*", "manifest.json"))
	if err != nil {
		return err
	}
	for i, path := range had {
		had[i] = filepath.Base(filepath.Dir(path))
	}
	if err := write(c, 5, c.Task); err != nil {
		return err
	}
	fmt.Printf("had [%s]\n", strings.Join(had, " "))
	for {
		m, err := control.Receive()
		if err != nil {
			return err
		}
		switch m.Kind {
		case cluster.Checkpoint:
			fmt.Println("asked")
			if *mute {
				continue
			}
			answer := cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 7, Cause: *refuse}
			if *refuse == "" {
				err = write(c, 7, workers(c)...)
			}
			if err != nil {
				answer.Cause = err.Error()
			}
			err = control.Send(answer)
		case cluster.Stop:
			return control.Send(cluster.ControlMessage{Kind: cluster.Finished})
		}
		if err != nil {
			return err
		}
	}
}

func workers(c cluster.Contract) (all []cluster.Task) {
	for i := range c.WorldSize {
		all = append(all, cluster.Task{Role: cluster.Worker, Index: i})
	}
	return all
}

// write writes the files of the given tasks in a checkpoint, and the
// checkpoint's manifest. Their content depends only on the step and the tasks,
// so all hosts write the same manifest.
func write(c cluster.Contract, step int, tasks ...cluster.Task) error {
	folder := filepath.Join(c.Checkpoints, flag.Arg(0), fmt.Sprintf("%012d-g0-0123abcd", step))
	err := os.MkdirAll(folder, 0o700)
	for _, t := range tasks {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name(t)), content(step, t), 0o600))
	}
	var files []map[string]any
	for _, t := range workers(c) {
		files = append(files, map[string]any{"name": name(t), "task": t, "size": len(content(step, t)), "sum": sum(content(step, t))})
	}
	body, failed := json.Marshal(map[string]any{"files": files, "step": step})
	manifest := fmt.Sprintf("{\"sum\":%q,\"checkpoint\":%s}\n", sum(body), body)
	return errors.Join(err, failed, os.WriteFile(filepath.Join(folder, "manifest.json"), []byte(manifest), 0o600))
}

func name(t cluster.Task) string { return fmt.Sprintf("%s-%d.safetensors", t.Role, t.Index) }

func content(step int, t cluster.Task) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%s at step %d\n", t, step), 50_000))
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
