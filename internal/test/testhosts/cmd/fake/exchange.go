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
	peers, err := connect(net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")), rank, world)
	if err != nil {
		return err
	}
	for n := range *steps {
		if err := step(n, rank == world-1); err != nil {
			return err
		}
		if err := meet(peers, rank == 0); err != nil {
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
	if rank > 0 {
		for range 1000 {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				return []net.Conn{c}, nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil, fmt.Errorf("no answer at %s", addr)
	}
	l, err := net.Listen("tcp", addr)
	for len(peers) < world-1 && err == nil {
		var c net.Conn
		c, err = l.Accept()
		peers = append(peers, c)
	}
	return peers, err
}

// meet ends after all ranks have called it.
func meet(peers []net.Conn, first bool) error {
	var b [1]byte
	for i := range 2 {
		for _, c := range peers {
			pass := c.Write
			if first == (i == 0) {
				pass = c.Read
			}
			if _, err := pass(b[:]); err != nil {
				return err
			}
		}
	}
	return nil
}
