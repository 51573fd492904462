import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Files;
import java.nio.file.Path;

/** HiveMQ CE on a port of 127.0.0.1, without persistence: Broker PORT DIRECTORY. */
public final class Broker {
    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[1]);
        String configuration = """
                <hivemq>
                  <listeners><tcp-listener><port>%s</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>
                  <persistence><mode>in-memory</mode></persistence>
                  <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
                </hivemq>
                """.formatted(arguments[0]);
        for (String name : new String[] {"conf", "data", "extensions"}) {
            Files.createDirectories(directory.resolve(name));
        }
        Files.writeString(directory.resolve("conf/config.xml"), configuration);
        EmbeddedHiveMQ broker = EmbeddedHiveMQ.builder()
                .withConfigurationFolder(directory.resolve("conf"))
                .withDataFolder(directory.resolve("data"))
                .withExtensionsFolder(directory.resolve("extensions"))
                .build();
        broker.start().join();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
