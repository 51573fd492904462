import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** ActiveMQ Artemis with MQTT on a port of 127.0.0.1, without persistence: Broker PORT DIRECTORY. */
public final class Broker {
    public static void main(String[] arguments) throws Exception {
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration.setPersistenceEnabled(false).setSecurityEnabled(false).setJMXManagementEnabled(false);
        configuration.setBrokerInstance(new java.io.File(arguments[1]));
        configuration.addAcceptorConfiguration("mqtt", "tcp://127.0.0.1:" + arguments[0] + "?protocols=MQTT");
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfiguration(configuration);
        broker.start();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
