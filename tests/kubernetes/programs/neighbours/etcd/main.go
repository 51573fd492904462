// The program etcd: the module of the server has the entry point, and no main package that builds outside etcd's own repository.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
