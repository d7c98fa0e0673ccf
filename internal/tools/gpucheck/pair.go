package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
)

// pairs are the flags of trainings by two workers, which share one GPU.
var pairs = map[string][]string{
	"linear": {"--steps=8", "--virtual-workers=2"},
	"mlp": {"--niters=8", "--dim-in=48", "--dim-hidden=32", "--n-layers=3", "--n-classes=6", "--train-size=240", "--batch-size=24",
		"--report-every=8", "--virtual-workers=2"},
	"mnist": {"--steps=7", "--batch-size=4", "--samples=40", "--virtual-workers=2"},
	"cifar": {"--steps=7", "--batch-size=2", "--samples=20", "--virtual-workers=2"},
}

var digests = regexp.MustCompile(`digest step=\d+ sha256=\w+`)

// pair trains an example alone and by two workers on one GPU, and wants the same bits.
func (f *folder) pair(ctx context.Context, name, program string) error {
	flags := slices.Concat([]string{name}, pairs[name], []string{"--seed=3", "--device=gpu", "--digest"})
	alone := f.exec(ctx, nil, program, flags...)
	if err := alone.failed("alone"); err != nil {
		return err
	}
	both, err := f.workers(ctx, program, flags)
	if err != nil {
		return err
	}
	want := digests.FindString(alone.out)
	if got := digests.FindString(both[0].out); got == "" || got != want {
		return &failure{fmt.Sprintf("two workers on one GPU have %q, one has %q", got, want), both[0].all}
	}
	return nil
}

// workers runs a program as two workers of a job.
func (f *folder) workers(ctx context.Context, program string, flags []string) (all [2]ended, err error) {
	secret := filepath.Join(f.temp, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("9", 64)), 0o600); err != nil {
		return all, err
	}
	c := cluster.Contract{Job: "gpu-check", WorldSize: 2, LocalWorldSize: 2, FirstWorldSize: 2, ListenFD: 3, SecretFile: secret, Dir: f.temp}
	var files [2]*os.File
	for i := range files {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return all, err
		}
		c.Cluster.Set(cluster.Task{Role: cluster.Worker, Index: i}, l.Addr().String())
		if files[i], err = l.File(); err != nil {
			return all, err
		}
		defer func() { _ = files[i].Close() }() // the worker has its own
		if err := l.Close(); err != nil {
			return all, err
		}
	}
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() {
			own, cmd := c, exec.CommandContext(ctx, program, flags...)
			own.Task, own.LocalRank = cluster.Task{Role: cluster.Worker, Index: i}, i
			own.Foreign.Visible = []string{"CUDA_VISIBLE_DEVICES=" + visible()}
			cmd.Env, cmd.ExtraFiles = own.Environ(), []*os.File{files[i]}
			all[i] = f.execute(ctx, cmd)
		})
	}
	running.Wait()
	return all, errors.Join(all[0].failed("worker:0"), all[1].failed("worker:1"))
}
