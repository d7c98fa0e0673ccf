package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// exchange makes steps without a trainer: before each step all ranks send rank 0 a byte, and
// get one from it.
func exchange() error {
	rank, err1 := strconv.Atoi(os.Getenv("RANK"))
	world, err2 := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err1 != nil || err2 != nil {
		return fmt.Errorf("RANK %q of WORLD_SIZE %q", os.Getenv("RANK"), os.Getenv("WORLD_SIZE"))
	}
	go func() { // the runtime ends a program in which no goroutine can run
		for range time.Tick(time.Second) {
			continue
		}
	}()
	addr := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	peers, err := connect(addr, rank, world)
	if err != nil {
		return err
	}
	for n := range *steps {
		if err := step(n, rank == world-1); err != nil {
			return err
		}
		if err := meet(peers, rank); err != nil {
			return err
		}
		if rank == 0 {
			fmt.Printf("step %d\n", n)
		}
	}
	return nil
}

// connect returns the connection to rank 0, or those of rank 0 to all others.
func connect(addr string, rank, world int) (peers []net.Conn, err error) {
	if rank == 0 {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		for len(peers) < world-1 {
			c, err := l.Accept()
			if err != nil {
				return nil, err
			}
			peers = append(peers, c)
		}
		return peers, nil
	}
	for range 1000 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return []net.Conn{c}, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("no answer at %s", addr)
}

// meet ends after all ranks have called it.
func meet(peers []net.Conn, rank int) error {
	var b [1]byte
	passes := []func([]byte) (int, error){}
	for _, c := range peers {
		if rank == 0 {
			passes = append(passes, c.Read)
		} else {
			passes = append(passes, c.Write, c.Read)
		}
	}
	if rank == 0 {
		for _, c := range peers {
			passes = append(passes, c.Write)
		}
	}
	for _, pass := range passes {
		if _, err := pass(b[:]); err != nil {
			return err
		}
	}
	return nil
}
