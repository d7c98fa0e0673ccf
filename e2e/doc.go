// Package e2e tests plx as its users run it: the real binary, against real
// SSH hosts (package testhosts) or the embedded cluster. It holds tests only.
package e2e
