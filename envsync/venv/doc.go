// Package venv describes a Python virtual environment of this machine, so that hosts
// get one that works at another path:
//
//	env, err := venv.Read(ctx, ".venv", venv.Options{Home: home, Cache: cache})
//	...
//	err = tree.Send(ctx, targets, env.Folder, nil) // and env.Base, unless it is nil
//	request := env.Request()                        // for package install, on a host
//
// # What it refuses
//
// It refuses a conda environment, whose programs have its path in their bytes, and an
// environment whose interpreter is gone or has another version than its packages. It
// installs nothing and changes no file here.
package venv
